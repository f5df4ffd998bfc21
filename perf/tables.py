#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures of copybench that the pages show: tables.py --refresh | --check [ROOT] | --show RUN

--show prints the medians of a run. --refresh writes the stored runs' figures into the pages, at the places that
perf/figures.txt names. --check fails if a page shows others, or if a figure of the README or docs/performance.md (a
number with a unit of time or speed, or in a table of them) is neither in such a place nor in a record,
docs/results/*.md.
"""
import glob
import json
import math
import os
import re
import sys

RUNS = "docs/results/copybench-{}.json"
COMPLETE = ("README.md", "docs/performance.md")
NUMBER = r"\d+(?:\.\d+)?"


def three(value):
    """Three digits, or all before the point."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def with_unit(ns):
    for unit, least in (("ms", 1e6), ("µs", 1e3), ("ns", 1)):
        if float(three(ns / least)) >= 1:
            return f"{three(ns / least)} {unit}"
    return f"{ns:.2f} ns"


def short(value):
    """As three(), with two digits."""
    return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f}"


class Run:
    """What an expression in perf/figures.txt has: h200 and h100; a cell in ns, of a table, column and line."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.tables = {table["table"]: table for table in json.load(file)["tables"]}

    def __call__(self, table, column, line):
        table = self.tables[table]
        return table["lines"][str(line)][table["columns"].index(column)]


# The formats of a place {FORMAT EXPRESSION}: what is matched, what is written.
FORMATS = {"t": (NUMBER + " (?:ns|µs|ms)", with_unit), "us": (NUMBER, lambda ns: three(ns / 1000)),
           "us2": (NUMBER, lambda ns: short(ns / 1000)), "ns": (NUMBER, lambda ns: f"{ns:.0f}"),
           "x": (NUMBER, short)}


def places(root):
    """[(page, pattern, what makes the text)] of each line of perf/figures.txt"""
    runs = {gpu: Run(os.path.join(root, RUNS.format(gpu))) for gpu in ("h200", "h100")}
    names = {**runs, "read": lambda column, line: runs["h200"]("read", column, line),
             "write": lambda column, line: runs["h200"]("write", column, line)}
    page, out = None, []
    with open(os.path.join(root, "perf/figures.txt"), encoding="utf-8") as file:
        for line in re.split(r"\n(?!\t\t)", file.read()):
            if line.startswith("#") or not line:
                continue
            if not line.startswith("\t"):
                page = line
                continue
            parts = re.split(r"\{(\w+) ([^}]*)\}", line[1:].replace("\n\t\t", "\n"))
            pattern, text = re.escape(parts[0]), parts[0]
            for style, expression, behind in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
                matched, written = FORMATS[style]
                pattern += f"({matched}){re.escape(behind)}"
                text += written(eval(expression, names)) + behind  # the repository's own file
            out.append((page, pattern, text))
    return out


def pages(root, refresh):
    texts, shown, bad = {}, {}, []
    for page, pattern, text in places(root):
        if page not in texts:
            with open(os.path.join(root, page), encoding="utf-8") as file:
                texts[page] = file.read()
        found = list(re.finditer(pattern, texts[page]))
        if len(found) != 1:
            bad.append(f"{page}: {len(found)} places are like {text!r}")
            continue
        if found[0][0] != text:
            bad.append(f"{page}: {found[0][0]!r} is shown, the run has {text!r}")
        # The test below looks at the rest.
        shown.setdefault(page, []).append(text)
        texts[page] = texts[page].replace(found[0][0], text)
    if refresh:
        for page, text in texts.items():
            with open(os.path.join(root, page), "w", encoding="utf-8") as file:
                file.write(text)
        return [line for line in bad if "places are like" in line]
    return bad + unrecorded(root, texts, shown)


def unrecorded(root, texts, shown):
    records = ""
    for path in glob.glob(os.path.join(root, "docs/results/*.md")):
        with open(path, encoding="utf-8") as file:
            records += file.read()
    recorded = set(re.findall(NUMBER, records))
    bad = []
    for page in COMPLETE:
        text = texts[page]
        for place in shown[page]:
            text = text.replace(place, "", 1)
        for block in re.split(r"\n\n", text):
            in_us = re.search(r"^\|.*\bµs\b|µs[^|\n]*:$", block, re.M)
            for line in block.splitlines():
                figures = re.findall(rf"(?<![\w.])({NUMBER})(?=(?:(?:,| to| and|;) {NUMBER})* ?(?:ns|µs|ms|GB/s|%))", line)
                if in_us and line.startswith("|"):
                    figures += re.findall(rf"(?<![\w.])({NUMBER})(?= *[|;,])", line.split("|", 2)[-1])
                bad += [f"{page}: {figure} is in no record: {line}" for figure in figures if figure not in recorded]
    return bad


def show(path):
    for name, table in Run(path).tables.items():
        print(f"\n{name} ({table['unit']})\n{'':12}", *(f"{column:>10}" for column in table["columns"]))
        for line, cells in table["lines"].items():
            print(f"{line:12}", *(f"{'-' if cell is None else three(cell):>10}" for cell in cells))


if sys.argv[1:2] == ["--show"] and len(sys.argv) == 3:
    sys.exit(show(sys.argv[2]))
if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("--refresh", "--check"):
    sys.exit(__doc__)
sys.exit("\n".join(pages(sys.argv[2] if len(sys.argv) > 2 else ".", sys.argv[1] == "--refresh")) or 0)
