#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Line coverage of the driver from the counters that the guest printed.

usage: coverage.py WORK_DIR CONSOLE SOURCE_DIR MINIMUM_PERCENT

Adds up all set-ups: a line counts as covered when any of them ran it, and counts at all when any of
the builds has code for it. Prints a line per file, the lines that nothing ran, and the total last.
"""
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile


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
                yield path.removeprefix("/sys/kernel/debug/gcov").removesuffix(".gcda"), bytes(data)


def lines_of(base, data):
    """(source, line, count) of one object's counters."""
    with tempfile.TemporaryDirectory() as tmp:
        name = os.path.basename(base)
        shutil.copy(base + ".gcno", os.path.join(tmp, name + ".gcno"))
        with open(os.path.join(tmp, name + ".gcda"), "wb") as f:
            f.write(data)
        subprocess.run(["gcov", "-j", name + ".gcda"], cwd=tmp, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for out in os.listdir(tmp):
            if out.endswith(".gcov.json.gz"):
                with gzip.open(os.path.join(tmp, out)) as f:
                    for source in json.load(f)["files"]:
                        for line in source["lines"]:
                            yield source["file"], line["line_number"], line["count"]


def main():
    work, console, sources, minimum = sys.argv[1:5]
    counts = {}
    for base, data in dumps(console):
        if not base.startswith(work):
            continue
        for source, line, count in lines_of(base, data):
            name = os.path.basename(source)
            # Tracepoints expand to the kernel's macros; they are its code.
            if name == "trace.h" or not os.path.exists(os.path.join(sources, name)):
                continue
            key = (name, line)
            counts[key] = counts.get(key, 0) + count
    hit, all_lines = 0, 0
    for name in sorted({name for name, _ in counts}):
        mine = {line: n for (f, line), n in counts.items() if f == name}
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
