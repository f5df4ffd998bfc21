# SPDX-License-Identifier: MIT
"""
Element types by one name ("float32"), as numpy, PyTorch, the buffer protocol and DLPack each write
them. A type that this table lacks keeps the name that its owner gives it. It knows nothing of memory.
"""
import functools
import math
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
# Floats that struct and numpy lack: bits of the exponent and of the mantissa, bias, and which codes are no numbers:
# as in IEEE 754 the largest exponent's; "fn" the largest code's alone; "fnuz" that of the negative zero.
_SMALL = {"bfloat16": None, "float8_e3m4": (3, 4, 3, "ieee"), "float8_e4m3": (4, 3, 7, "ieee"),
          "float8_e4m3b11fnuz": (4, 3, 11, "fnuz"), "float8_e4m3fn": (4, 3, 7, "fn"),
          "float8_e4m3fnuz": (4, 3, 8, "fnuz"), "float8_e5m2": (5, 2, 15, "ieee"),
          "float8_e5m2fnuz": (5, 2, 16, "fnuz"), "float8_e8m0fnu": (8, 0, 127, "fnu")}
KNOWN.update((name, (7 + i, 1)) for i, name in enumerate(n for n in _SMALL if n != "bfloat16"))
_KINDS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
# Of the buffer protocol; a complex number is Z and a float's letter.
_LETTERS = {**dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint"),
            **dict.fromkeys("efdg", "float"), **dict.fromkeys(("Zf", "Zd", "Zg"), "complex")}
_OTHER_NAMES = {"float": "float64", "int": "int64", "complex": "complex128", "half": "float16", "bool_": "bool"}
_NATIVE, _FOREIGN = ("<", ">") if sys.byteorder == "little" else (">", "<")

BYTES = "uint8"


class DType(str):
    """A name, which equals the types of numpy and PyTorch that it names."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            try:
                other = of_request(other)
            except TypeError:
                return False
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def is_bytes(name):
    """Such memory takes, and goes into, elements of every type: bytes, records, an address."""
    return name is None or name == BYTES or name[1:2] == "V"


def itemsize(name):
    return KNOWN[name][1]


def step(name):
    """The bytes of an element; None where it has one, or of a type that is not known."""
    size = KNOWN[name][1] if name in KNOWN else 1
    return size if size > 1 else None


def of_typestr(typestr):
    """Of "<f4": "float32"."""
    match = re.match(r"[<>=|]([iufc])(\d+)$", typestr)
    if typestr == "|b1":
        return "bool"
    if not match or (typestr[0] == _FOREIGN and match.group(2) != "1"):
        return typestr
    name = f"{_KINDS[match.group(1)]}{8 * int(match.group(2))}"
    return name if name in KNOWN else typestr


def of_view(view):
    """Of a memoryview's elements."""
    form = view.format.lstrip("@=" + _NATIVE)
    if form == "?":
        return "bool"
    if form == "c" or form[-1:] in ("s", "x", "}"):
        return BYTES
    if form[-1:] == "w" and form[:-1].isdigit():
        return f"{_NATIVE}U{form[:-1]}"
    kind = _LETTERS.get(form)
    return of_typestr(f"{_NATIVE}{kind[0]}{view.itemsize}") if kind else view.format


def of_array(array):
    """Of an object with a dtype, as numpy has; None: it has none."""
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        return None
    return dtype.name if dtype.name in KNOWN else of_typestr(dtype.str)


def of_request(dtype):
    """Of what a caller gives as a dtype: a name, a typestr, a type of numpy, of ml_dtypes, of PyTorch or of Python."""
    name = dtype.__name__ if isinstance(dtype, type) else re.sub(r"^torch\.", "", str(dtype))
    name = _OTHER_NAMES.get(name, name)
    if name not in KNOWN:
        numpy = sys.modules.get("numpy")
        name = of_typestr(numpy.dtype(dtype).str if numpy and dtype is not None else name)
    if name not in KNOWN:
        raise TypeError(f"no element type {dtype!r}: one of {', '.join(KNOWN)}")
    return name


def for_numpy(dtype):
    """A caller's dtype as numpy.dtype() takes it: PyTorch's by their names, all others as they are."""
    name = str(dtype)
    if not name.startswith("torch."):
        return of_ml_dtypes(dtype) or dtype if isinstance(dtype, str) and dtype in _SMALL else dtype
    name = of_request(dtype)
    return in_numpy(name) or of_ml_dtypes(name) or name


def of_dlpack(code, bits, lanes):
    """None where DLPack's type is none of these."""
    return next((name for name, (c, size) in KNOWN.items() if (c, 8 * size, 1) == (code, bits, lanes)), None)


def dlpack(name):
    """(code, bits); None where DLPack has no such type."""
    known = KNOWN.get(name or BYTES)
    return known and (known[0], 8 * known[1])


def in_numpy(name):
    """As numpy.dtype() takes it; None where numpy lacks it."""
    known = name in KNOWN and name not in _SMALL
    return name if known or name[:1] in ("<", ">", "=", "|") else None


def of_ml_dtypes(name):
    """numpy's type of that name that the package ml_dtypes adds; None without it."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return getattr(ml_dtypes, name, None)


def typestr(name):
    """Of "float32": "<f4"; None where there is none."""
    name = in_numpy(name or BYTES)
    if name not in KNOWN:
        return name
    size = itemsize(name)
    return f"{'|' if size == 1 else _NATIVE}{name[0]}{size}"


@functools.lru_cache(maxsize=None)
def letter(name):
    """Of "float32": "f", for struct and memoryview; None: they have none."""
    return next((letter for letter, kind in _LETTERS.items() if len(letter) == 1 and letter != "g" and
                 f"{kind}{8 * struct.calcsize(letter)}" == name), "?" if name == "bool" else None)


@functools.lru_cache(maxsize=None)
def _codes(name):
    """The number of each code of a float of one byte."""
    exponent_bits, bits, bias, kind = _SMALL[name]
    numbers = []
    for code in range(256):
        sign = -1 if kind != "fnu" and code >> 7 else 1
        exponent, mantissa = code >> bits & (1 << exponent_bits) - 1, code & (1 << bits) - 1
        last = exponent == (1 << exponent_bits) - 1
        if kind == "ieee" and last:
            number = math.nan if mantissa else math.inf
        elif kind[:2] == "fn" and code == (0x80 if kind == "fnuz" else 0xff) or \
                kind == "fn" and last and mantissa == (1 << bits) - 1:
            number = math.nan
        elif kind == "fnu" or exponent:
            number = math.ldexp(1 + mantissa / (1 << bits), exponent - bias)
        else:
            number = math.ldexp(mantissa, 1 - bias - bits)
        numbers.append(sign * number)
    return numbers


def _code(name, value):
    """The code of the nearest number, of two the even one; infinity, or none, beyond the largest."""
    numbers = _codes(name)
    finite = sorted((number, code) for code, number in enumerate(numbers)
                    if math.isfinite(number) and math.copysign(1, number) == math.copysign(1, value))
    if not finite:
        raise ValueError(f"{value!r} is no {name}")
    if math.isfinite(value):
        largest = max(finite, key=lambda entry: abs(entry[0]))
        second = sorted(abs(number) for number, _ in finite)[-2]
        end = abs(largest[0]) + (abs(largest[0]) - second) / 2
        if abs(value) < end or abs(value) == end and not largest[1] & 1:
            return min(finite, key=lambda entry: (abs(entry[0] - value), entry[1] & 1))[1]
        value = math.copysign(math.inf, value)
    return next((code for code, number in enumerate(numbers) if number == value),
                next(code for code, number in enumerate(numbers) if math.isnan(number)))


def packed(name, value):
    """The bytes of one element."""
    try:
        form = letter(name or BYTES)
        if form:
            return struct.pack(form, value)
        if name in KNOWN and name.startswith("complex"):
            value, form = complex(value), 2 * letter(f"float{4 * itemsize(name)}")
            return struct.pack(form, value.real, value.imag)
        if name == "bfloat16":
            bits, = struct.unpack("=I", struct.pack("=f", value))
            return struct.pack("=H", 0x7fc0 if value != value else bits + 0x7fff + (bits >> 16 & 1) >> 16)
        if name in _SMALL:
            return bytes([_code(name, float(value))])
    except (struct.error, OverflowError, ValueError) as why:
        raise ValueError(f"{value!r} is no {name or BYTES}: {why}") from None
    raise TypeError(f"an element of {name} is unknown here: write() the values, or fill(0)")


def unpacked(name, data):
    """One element of these bytes, as a number of Python."""
    form = letter(name or BYTES)
    if form:
        return struct.unpack(form, data)[0]
    if name in KNOWN and name.startswith("complex"):
        return complex(*struct.unpack(2 * letter(f"float{4 * itemsize(name)}"), data))
    if name == "bfloat16":
        return struct.unpack("=f", struct.pack("=I", struct.unpack("=H", data)[0] << 16))[0]
    if name in _SMALL:
        return _codes(name)[data[0]]
    raise TypeError(f"an element of {name} is no number of Python: use array() or read()")


def packed_all(name, values):
    """The bytes of a number, or of a list of numbers, which may be nested, and the shape of the list."""
    if not isinstance(values, (list, tuple)):
        return packed(name, values), ()
    parts = [packed_all(name, value) for value in values]
    if len({shape for _, shape in parts}) > 1:
        raise ValueError("the lists in a list differ in length")
    return b"".join(part for part, _ in parts), (len(parts), *(parts[0][1] if parts else ()))


def formats(name):
    """Of memoryviews that hold such elements for sure; None: every format will do."""
    if is_bytes(name):
        return None
    native = {letter for letter, kind in _LETTERS.items()
              if letter[-1] != "g" and letter[0] != "Z" and f"{kind}{8 * struct.calcsize(letter)}" == name}
    return frozenset(native | {"B", "c", "?" if name == "bool" else "B"})
