# SPDX-License-Identifier: MIT
"""Whether the figures of the README's first table are those of the stored runs, as far as they are
shown.

    figures.py README.md COPYBENCH.json CLIENTS.md
"""
import json
import re
import sys


def rows(text, start):
    """The cells of the table's lines whose first cell begins with `start`."""
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith(f"| {start}")]


def agrees(shown, stored):
    """Is `shown` the stored number, rounded to as many digits?"""
    digits = len(shown.partition(".")[2])
    return abs(float(shown) - stored) <= 0.5 * 10 ** -digits + 1e-9


def benchmark(path):
    """{(table, size): (cuMemcpy, library)} in us"""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    out = {}
    for table in document["tables"]:
        if table["table"] in ("read", "write"):
            ours, theirs = (table["columns"].index(c) for c in ("library", "cuMemcpy"))
            for size, cells in table["lines"].items():
                out[table["table"], size] = cells[theirs] / 1000, cells[ours] / 1000
    return out


def clients(path):
    """{size: (without gdr_copy, with the two variables)} in us, of the first table of docs/results/clients.md"""
    out = {}
    with open(path, encoding="utf-8") as file:
        for line in file.read().split("One H100")[0].splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) == 7 and all(re.fullmatch(r"[\d.]+", cell) for cell in cells[1:]):
                out[cells[0].replace(" ", "")] = float(cells[2]), float(cells[3])
    return out


def main():
    readme, results, programs = sys.argv[1:]
    with open(readme, encoding="utf-8") as file:
        text = file.read()
    stored = benchmark(results)
    run = clients(programs)
    wanted = {"write 8 bytes; 4 KiB": [stored["write", "8"], stored["write", "4K"]],
              "read 8 bytes; 1 KiB": [stored["read", "8"], stored["read", "1K"]],
              "UCX, unmodified, two GPUs": [run[size] for size in ("8", "1Ki")]}
    bad = 0
    for start, pairs in wanted.items():
        found = rows(text, start)
        if len(found) != 1:
            sys.exit(f"{readme}: {len(found)} rows begin with {start!r}")
        for column in (0, 1):
            for shown, pair in zip(found[0][column + 1].split(";"), pairs, strict=True):
                if not agrees(shown.strip(), pair[column]):
                    print(f"{start}: {shown.strip()} is shown, {pair[column]:g} was stored")
                    bad = 1
    sys.exit(bad)


main()
