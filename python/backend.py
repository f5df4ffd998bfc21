# SPDX-License-Identifier: MIT
"""
Makes the wheel and the source distribution (PEP 517) of barcopy, with nothing but Python itself, the same
bits each time. What pyproject.toml says of the project is said again here: Python 3.8 cannot read that file.

    backend.py metadata                      prints the METADATA of a distribution
    backend.py wheel DIRECTORY LIBRARY EXTENSION TAG
                                             a wheel with the library and fast.c's extension inside, for the
                                             platform TAG (several are joined by dots); prints its name

PROJECT_URL in the environment goes into the METADATA.
"""
import base64
import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
import zipfile

_HERE = os.path.dirname(os.path.abspath(__file__))


def _read(*path):
    with open(os.path.join(_HERE, *path), encoding="utf-8") as f:
        return f.read()


def _version():
    return re.search(r'^__version__ = "(.*)"', _read("barcopy", "__init__.py"), re.M).group(1)


def _metadata():
    project = _read("pyproject.toml")
    homepage = re.search(r'^Homepage = "(.*)"$', project, re.M)
    keywords = re.search(r"^keywords = \[(.*)\]$", project, re.M).group(1)
    url = os.environ.get("PROJECT_URL") or homepage and homepage.group(1)
    return (f"Metadata-Version: 2.1\nName: barcopy\nVersion: {_version()}\n"
            "Summary: Direct CPU access to NVIDIA GPU memory\n"
            "Author: The barcopy authors\nLicense: MIT\nLicense-File: LICENSE\n"
            "Keywords: " + ",".join(re.findall('"(.*?)"', keywords)) + "\n" +
            "".join(f"Classifier: {c}\n" for c in re.findall(r'^ +"(.* :: .*)",$', project, re.M)) +
            (f"Project-URL: Homepage, {url}\n" if url else "") +
            "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n" + _read("README.md"))


def _wheel(platforms, pure):
    return (f"Wheel-Version: 1.0\nGenerator: barcopy\nRoot-Is-Purelib: {str(pure).lower()}\n" +
            "".join(f"Tag: py3-none-{platform}\n" for platform in platforms.split(".")))


def _write(directory, files, platforms="any", pure=True):
    """The wheel of these (name, bytes), with their sums; returns its name."""
    path = f"barcopy-{_version()}-py3-none-{platforms}.whl"
    info = f"barcopy-{_version()}.dist-info"
    files = files + [(f"{info}/LICENSE", text) for text in _licence()]
    files = files + [(f"{info}/METADATA", _metadata().encode()),
                     (f"{info}/WHEEL", _wheel(platforms, pure).encode())]
    record = ""
    with zipfile.ZipFile(os.path.join(directory, path), "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            wheel.writestr(_entry(name), data)
        record += f"{info}/RECORD,,\n"
        wheel.writestr(_entry(f"{info}/RECORD"), record)
    return path


def _entry(name):
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _sources():
    folder = os.path.join(_HERE, "barcopy")
    for name in sorted(os.listdir(folder)):
        if name.endswith((".py", ".typed")):
            with open(os.path.join(folder, name), "rb") as f:
                yield f"barcopy/{name}", f.read()


def _licence():
    """Its text: next to this file in a source distribution, else above it. None in a copy of this directory."""
    for folder in _HERE, os.path.dirname(_HERE):
        path = os.path.join(folder, "LICENSE")
        if os.path.exists(path):
            with open(path, "rb") as f:
                return [f.read()]
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _write(wheel_directory, list(_sources()))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Of `pip install -e`: a wheel that names this directory (PEP 660)."""
    return _write(wheel_directory, [("__editable__.barcopy.pth", _HERE.encode() + b"\n")])


def build_sdist(sdist_directory, config_settings=None):
    base = f"barcopy-{_version()}"
    files = [("LICENSE", text) for text in _licence()]
    for name in ("pyproject.toml", "backend.py", "README.md", "fast.c"):
        with open(os.path.join(_HERE, name), "rb") as f:
            files.append((name, f.read()))
    files += [*_sources(), ("PKG-INFO", _metadata().encode())]
    # Neither the time nor the builder's name is in it.
    with open(os.path.join(sdist_directory, base + ".tar.gz"), "wb") as out, \
            gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files:
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size, entry.mtime = len(data), 315532800  # 1980, as in the wheel
            tar.addfile(entry, io.BytesIO(data))
    return base + ".tar.gz"


if __name__ == "__main__":
    if sys.argv[1:] == ["metadata"]:
        sys.stdout.write(_metadata())
    elif len(sys.argv) == 6 and sys.argv[1] == "wheel":
        with open(sys.argv[3], "rb") as library, open(sys.argv[4], "rb") as extension:
            inside = [("barcopy/_fast.abi3.so", extension.read()), ("barcopy/libgdrapi.so.2", library.read())]
        print(_write(sys.argv[2], list(_sources()) + inside, sys.argv[5], pure=False))
    else:
        sys.exit(__doc__)
