#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables of copybench --json as Markdown, and the figures that the pages show.

    tables.py TABLE[:COLUMN,...] copybench.json [ANOTHER_PASS.json ...]
    tables.py --refresh | --check [ROOT]

A table: times are medians of the rounds of the first pass with their quartiles behind them, ratios the column's time
over the library's in every pass. A ratio no farther from 1 than the same call was from itself (`again`), on
that line or the ones beside it, in any pass, is "level".

--refresh writes the stored runs' figures into the pages, at the places that perf/figures.txt names. --check fails if a
page shows others, or if a figure of the README or docs/performance.md (a number with a unit of time or speed, or in a
table of them) is neither in such a place nor in a record, docs/results/*.md.
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


def table_of(document, name):
    for table in document["tables"]:
        if table["table"] == name:
            return table
    sys.exit(f"no table {name!r}")


def spread(tables, line):
    """How far the first column and its repetition were apart there and beside it, at most."""
    far = 0.0
    for table in tables:
        names = list(table["lines"])
        at, again = names.index(line), table["columns"].index("again")
        for name in names[max(at - 1, 0):at + 2]:
            cells = table["lines"][name]
            far = max(far, abs(cells[again] / cells[0] - 1))
    return far


def time(ns):
    if ns is None:
        return "-"
    return f"{ns:.0f} ns" if ns < 1000 else f"{ns / 1000:.3g} us" if ns < 1e6 else f"{ns / 1e6:.3g} ms"


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
            self.document = json.load(file)

    def __call__(self, table, column, line):
        table = table_of(self.document, table)
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


def main():
    if len(sys.argv) > 1 and sys.argv[1] in ("--refresh", "--check"):
        bad = pages(sys.argv[2] if len(sys.argv) > 2 else ".", sys.argv[1] == "--refresh")
        sys.exit("\n".join(bad) if bad else 0)
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    name, _, wanted = sys.argv[1].partition(":")
    tables = []
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as file:
            tables.append(table_of(json.load(file), name))
    first = tables[0]
    columns = wanted.split(",") if wanted else [c for c in first["columns"][1:] if c != "again"]
    print(f"| | {first['columns'][0]} (quartiles) | apart | "
          + " | ".join(f"{c} | ratio" for c in columns) + " |")
    print("|---:|---:|---:|" + "---:|---:|" * len(columns))
    for line, cells in first["lines"].items():
        low, high = first["low_quartile"][line][0], first["high_quartile"][line][0]
        far = spread(tables, line)
        row = [line, f"{time(cells[0])} ({time(low).split()[0]} to {time(high).split()[0]})", f"{100 * far:.1f}%"]
        for column in columns:
            at = first["columns"].index(column)
            ratios = [t["lines"][line][at] / t["lines"][line][0] for t in tables
                      if t["lines"][line][at]]
            row.append(time(cells[at]))
            if not ratios:
                row.append("-")
            elif all(abs(r - 1) <= far for r in ratios):
                row.append("level")
            else:
                row.append(" to ".join(f"{r:.2f}" for r in
                                       ([min(ratios), max(ratios)] if len(ratios) > 1 else ratios)))
        print("| " + " | ".join(row) + " |")


main()
