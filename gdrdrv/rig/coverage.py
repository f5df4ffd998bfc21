#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Line coverage of the driver from the counters that the guest printed.

usage: coverage.py LIST CONSOLE SOURCE_DIR MINIMUM_PERCENT

LIST has the counters that the guest prints, one per object of each build. A line is covered if any
set-up ran it, and is counted if any build has code for it: an object whose counters did not arrive
counts as not covered. Prints a line per file with the lines that never ran, and the total last.
"""
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile


def object_of(counters):
    """The path of the object, without its ending, whose counters the guest finds there."""
    return counters.removeprefix("/sys/kernel/debug/gcov").removesuffix(".gcda")


def dumps(console):
    """Yields (path of the object without .gcda, counters) for each dump on the console."""
    path, data = None, bytearray()
    with open(console, errors="replace") as lines:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "GCOV":
                path, data = rest, bytearray()
            elif word == "GCOVDATA":
                data += bytes.fromhex(rest)
            elif word == "GCOVEND" and path:
                yield object_of(path), bytes(data)


def lines_of(base, data):
    """(source, line, count) of one object's counters; without data, of its code: nothing ran."""
    with tempfile.TemporaryDirectory() as tmp:
        name = os.path.basename(base)
        shutil.copy(base + ".gcno", os.path.join(tmp, name + ".gcno"))
        if data:
            with open(os.path.join(tmp, name + ".gcda"), "wb") as f:
                f.write(data)
        subprocess.run(["gcov", "-j", name + ".gcno"], cwd=tmp, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for out in os.listdir(tmp):
            if out.endswith(".gcov.json.gz"):
                with gzip.open(os.path.join(tmp, out)) as f:
                    for source in json.load(f)["files"]:
                        for line in source["lines"]:
                            yield source["file"], line["line_number"], line["count"]


def main():
    expected, console, sources, minimum = sys.argv[1:5]
    with open(expected) as f:
        bases = [object_of(line.strip()) for line in f if line.strip()]
    arrived = list(dumps(console))
    counts = {}
    for base in bases:
        if not os.path.exists(base + ".gcno"):
            print(f"{base}: built without counters")
            return 1
        if base not in (name for name, _ in arrived):
            print(f"{base}: no counters from the guest")
    for base, data in [(base, None) for base in bases] + arrived:
        if base not in bases:
            continue
        for source, line, count in lines_of(base, data):
            name = os.path.basename(source)
            if not os.path.exists(os.path.join(sources, name)):
                continue
            key = (name, line)
            counts[key] = counts.get(key, 0) + count
    for base in bases:  # one without a line of code is not left out silently
        counts.setdefault((os.path.basename(base) + ".c", 0), None)
    hit, all_lines = 0, 0
    for name in sorted({name for name, _ in counts}):
        mine = {line: n for (f, line), n in counts.items() if f == name and line}
        covered = sum(1 for n in mine.values() if n)
        hit += covered
        all_lines += len(mine)
        missed = " ".join(str(line) for line, n in sorted(mine.items()) if not n)
        print(f"{name}: {covered} of {len(mine)}" + (f", never run: {missed}" if missed else ""))
    percent = 100.0 * hit / all_lines if all_lines else 0.0
    print(f"{hit} of {all_lines} lines, {percent:.1f}%")
    return 0 if percent >= float(minimum) else 1


if __name__ == "__main__":
    sys.exit(main())
