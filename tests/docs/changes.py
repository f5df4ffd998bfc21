#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
docs/internals/changes.md: the files of each change are those in which its example's expression occurs, and each word of
its TESTS='...' is in the name of a test of make check.

changes.py [PAGE]  prints what differs; exit code 1: something does.
"""
import os
import re
import subprocess
import sys

FOLDERS = "include", "src", "python", "packaging", "tools", "perf", "sim", "tests", "gdrdrv"


def sources():
    for top in FOLDERS:
        for folder, below, names in os.walk(top):
            below[:] = [name for name in below if name != "__pycache__" and f"{folder}/{name}" != "python/build"]
            for name in names:
                path = f"{folder}/{name}"
                try:
                    with open(path, encoding="utf-8") as f:
                        yield path, f.read()
                except UnicodeDecodeError:
                    pass


def main():
    with open(sys.argv[1] if sys.argv[1:] else "docs/internals/changes.md", encoding="utf-8") as f:
        changes = re.findall(r"^## ([^\n:]*): `([^\n]*)`\n(.*?)(?=^## |\Z)", f.read(), re.M | re.S)
    texts, bad = dict(sources()), []
    del texts["tests/docs/changes.py"]
    tests = subprocess.run(["make", "-s", "--no-print-directory", "print-tests"], stdout=subprocess.PIPE, text=True,
                           check=True).stdout.split()
    for name, expression, text in changes:
        listed = {path for path in re.findall(r"`([\w./-]+)`", text) if path in texts}
        found = {path for path, source in texts.items() if re.search(expression, source, re.M)}
        bad += [f"{name}: {path} has the example and is not in the list" for path in sorted(found - listed)]
        bad += [f"{name}: {path} has no {expression}" for path in sorted(listed - found)]
        words = re.findall(r"^`TESTS='([^']*)'", text, re.M)
        bad += [] if len(words) == 1 else [f"{name}: {len(words)} lines of TESTS"]
        bad += [f"{name}: no test has {word} in its name" for word in " ".join(words).split()
                if not any(word in test for test in tests)]
    print("\n".join(bad), end="\n" if bad else "")
    return bool(bad) or len(changes) < 6


if __name__ == "__main__":
    sys.exit(main())
