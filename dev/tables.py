#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints tables of copybench --json as Markdown, with what the library is ahead of each column by.

    tables.py TABLE[:COLUMN,...] copybench.json [ANOTHER_PASS.json ...]

Times are medians of the rounds of the first pass with their quartiles behind them, ratios the column's time
over the library's in every pass. A ratio no farther from 1 than the same call was from itself (`again`), on
that line or the ones beside it, in any pass, is "level".
"""
import json
import sys


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


def main():
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
