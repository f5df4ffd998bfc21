# SPDX-License-Identifier: MIT
"""
Element types by one name ("float32"), as numpy, PyTorch, the buffer protocol and DLPack each write
them. A type that this table lacks keeps the name that its owner gives it. It knows nothing of memory.
"""
import re
import struct
import sys

# name: (DLPack's code, bytes)
KNOWN = {f"{kind}{8 * size}": (code, size)
          for code, kind, sizes in ((0, "int", (1, 2, 4, 8)), (1, "uint", (1, 2, 4, 8)),
                                    (2, "float", (2, 4, 8)), (4, "bfloat", (2,)),
                                    (5, "complex", (8, 16)), (6, "bool", (1,)))
          for size in sizes}
KNOWN["bool"] = KNOWN.pop("bool8")
_KINDS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
# Of the buffer protocol; a complex number is Z and a float's letter.
_LETTERS = {**dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint"),
            **dict.fromkeys("efdg", "float"), **dict.fromkeys(("Zf", "Zd", "Zg"), "complex")}
_FOREIGN = ">" if sys.byteorder == "little" else "<"

BYTES = "uint8"


def is_bytes(name):
    """Such memory takes, and goes into, elements of every type: bytes, records, an address."""
    return name is None or name == BYTES or name.startswith("|V")


def itemsize(name):
    return KNOWN[name][1]


def of_typestr(typestr):
    """Of "<f4": "float32"."""
    match = re.match(r"[<>=|]([iufc])(\d+)$", typestr)
    if typestr == "|b1":
        return "bool"
    if not match or (typestr[0] == _FOREIGN and match.group(2) != "1"):
        return typestr
    return f"{_KINDS[match.group(1)]}{8 * int(match.group(2))}"


def of_view(view):
    """Of a memoryview's elements."""
    form = view.format.lstrip("@=<" if _FOREIGN == ">" else "@=>")
    if form == "?":
        return "bool"
    if form == "c" or form[-1:] in ("s", "}"):
        return BYTES
    kind = _LETTERS.get(form)
    return f"{kind}{8 * view.itemsize}" if kind else view.format


def of_array(array):
    """Of an object with a dtype, as numpy has; None: it has none."""
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        return None
    return dtype.name if dtype.name in KNOWN and dtype.isnative else of_typestr(dtype.str)


def of_request(dtype):
    """Of what a caller gives as a dtype: a name, a typestr, a type of numpy or of PyTorch."""
    name = dtype.__name__ if isinstance(dtype, type) else re.sub(r"^torch\.", "", str(dtype))
    if name not in KNOWN:
        numpy = sys.modules.get("numpy")
        name = of_typestr(numpy.dtype(dtype).str if numpy else name)
    if name not in KNOWN:
        raise TypeError(f"no element type {dtype!r}: one of {', '.join(KNOWN)}")
    return name


def of_dlpack(code, bits, lanes):
    """None where DLPack's type is none of these."""
    return next((name for name, (c, size) in KNOWN.items() if (c, 8 * size, 1) == (code, bits, lanes)), None)


def dlpack(name):
    """(code, bits); None where DLPack has no such type."""
    known = KNOWN.get(name or BYTES)
    return known and (known[0], 8 * known[1])


def in_numpy(name):
    """As numpy.dtype() takes it; None where numpy lacks it."""
    known = name in KNOWN and not name.startswith("bfloat")
    return name if known or name[:1] in ("<", ">", "=", "|") else None


def typestr(name):
    """Of "float32": "<f4"; None where there is none."""
    if name is None or in_numpy(name) is None:
        return None if name else "|u1"
    if name not in KNOWN:
        return name
    size = itemsize(name)
    return f"{'|' if size == 1 else '<' if _FOREIGN == '>' else '>'}{name[0]}{size}"


def letter(name):
    """Of "float32": "f", for struct and memoryview; None: they have none."""
    return next((letter for letter, kind in _LETTERS.items() if len(letter) == 1 and letter != "g" and
                 f"{kind}{8 * struct.calcsize(letter)}" == name), "?" if name == "bool" else None)


def packed(name, value):
    """The bytes of one element."""
    if name and name.startswith("complex"):
        value, form = complex(value), 2 * letter(f"float{4 * itemsize(name)}")
        return struct.pack(form, value.real, value.imag)
    form = letter(name or BYTES)
    if form is None:
        raise TypeError(f"an element of {name} is unknown here: write() the values, or fill(0)")
    try:
        return struct.pack(form, value)
    except (struct.error, OverflowError) as why:
        raise ValueError(f"{value!r} is no {name or BYTES}: {why}") from None


def formats(name):
    """Of memoryviews that hold such elements for sure; None: every format will do."""
    if is_bytes(name):
        return None
    native = {letter for letter, kind in _LETTERS.items()
              if letter[-1] != "g" and letter[0] != "Z" and f"{kind}{8 * struct.calcsize(letter)}" == name}
    return frozenset(native | {"B", "c", "?" if name == "bool" else "B"})
