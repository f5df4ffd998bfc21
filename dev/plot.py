#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the `read` and `write` tables of copybench --json as SVG.

    plot.py copybench.json OUT_DIR     read-latency.svg read-bandwidth.svg write-...

Columns drawn: the library's choice alone and with the copy engine allowed, the baseline as it is and
fenced, cuMemcpy to pageable and to pinned memory.
"""
import json
import math
import os
import sys

CURVES = [("library", "barcopy", "#1668b8", ""), ("engine", "its copy engine", "#1668b8", "6 4"),
          ("baseline", "baseline", "#c4422d", ""),
          ("b.fenced", "baseline, fenced", "#c4422d", "6 4"),
          ("cuMemcpy", "cuMemcpy pageable", "#777777", "6 4"),
          ("cuMem.pin", "cuMemcpy pinned", "#777777", "")]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 420, 70, 20, 44, 52


def size_of(text):
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
    return int(text.rstrip("KM")) * unit


def curves_of(table, value):
    """[(label, colour, dash, [(size, value(size, ns))...])...]"""
    out = []
    for column, label, colour, dash in CURVES:
        if column not in table["columns"]:
            continue
        at = table["columns"].index(column)
        points = [(size_of(line), value(size_of(line), cells[at]))
                  for line, cells in table["lines"].items() if cells[at]]
        out.append((label, colour, dash, points))
    return out


def decades(low, high):
    return range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)


def number(value):
    return f"{value:g}"


def draw(title, y_name, curves):
    sizes = [x for _, _, _, points in curves for x, _ in points]
    values = [y for _, _, _, points in curves for _, y in points]
    x_low, x_high = math.log2(min(sizes)), math.log2(max(sizes))
    y_low, y_high = decades(min(values), max(values))[0], decades(min(values), max(values))[-1]

    def x_at(size):
        return LEFT + (math.log2(size) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def y_at(value):
        return HEIGHT - BOTTOM - ((math.log10(value) - y_low) / (y_high - y_low)
                                  * (HEIGHT - TOP - BOTTOM))

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="20" font-size="14">{title}</text>']
    for power in range(y_low, y_high + 1):
        y = y_at(10 ** power)
        svg.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                   'stroke="#dddddd"/>')
        svg.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
                   f'{number(10 ** power)}</text>')
    for power in range(math.ceil(x_low), math.floor(x_high) + 1, 2):
        x, size = x_at(2 ** power), 2 ** power
        text = (f"{size >> 20} MiB" if size >= 1 << 20 else
                f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B")
        svg.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" '
                   'stroke="#eeeeee"/>')
        svg.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                   f'{text}</text>')
    svg.append(f'<text x="16" y="{(HEIGHT + TOP - BOTTOM) / 2}" text-anchor="middle" '
               f'transform="rotate(-90 16 {(HEIGHT + TOP - BOTTOM) / 2})">{y_name}</text>')
    for i, (label, colour, dash, points) in enumerate(curves):
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in points)
        svg.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"'
                   + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")
        x = LEFT + i * 135
        svg.append(f'<line x1="{x}" y1="34" x2="{x + 24}" y2="34" stroke="{colour}" '
                   'stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")
        svg.append(f'<text x="{x + 30}" y="38">{label}</text>')
    svg.append("</svg>")
    return "\n".join(svg) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    where = (f'{document["gpu"]["name"]}, {document["buffer"]["mapping"]}'
             if "buffer" in document else "host memory")
    for table in document["tables"]:
        if table["table"] not in ("read", "write"):
            continue
        what = "Reads of" if table["table"] == "read" else "Writes to"
        for name, y_name, value in (
                ("latency", "microseconds a copy", lambda size, ns: ns / 1000),
                ("bandwidth", "GB/s", lambda size, ns: size / ns)):
            path = os.path.join(sys.argv[2], f'{table["table"]}-{name}.svg')
            with open(path, "w", encoding="utf-8") as file:
                file.write(draw(f"{what} GPU memory, one thread: {where}", y_name,
                                curves_of(table, value)))


main()
