#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes docs/index.html, the page that a newcomer looks at first: `make docs`.

    make.py [ROOT] >page            the repository keeps no copy; tarball and packages have one
    make.py --picture [ROOT]        writes docs/latency.svg, which the README shows: `make refresh-figures`

Figures come from docs/results, the first program from the README. The page needs nothing from elsewhere.
"""
import html
import json
import os
import re
import sys

import plot

RESULTS = "docs/results/copybench-h200.json"
# Label, column, style, and the least size that is drawn: the copy engine is for large copies.
WITHOUT = [("cuMemcpy, pageable memory", "cuMemcpy", "cuda", 0),
           ("cuMemcpy, page-locked memory", "cuMem.pin", "cuda thin", 0)]
GDRCOPY = {"write": [("GDRCopy 2.6's copies", "baseline", "gdr", 0)],
           "read": [("GDRCopy 2.6's, fenced", "b.fenced", "gdr", 0)]}
WITH = [("barcopy", "library", "ours", 0)]
ENGINE = [("barcopy, by the copy engine", "engine", "ours thin", 16384)]
PICTURE, MOST = "docs/latency.svg", 1 << 20
CURVES = {"write": WITHOUT + GDRCOPY["write"] + WITH, "read": WITHOUT + GDRCOPY["read"] + ENGINE + WITH}

def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def size_of(name):
    return int(name.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(name[-1], 1)


def curves_of(table, value):
    out = []
    for label, column, style, least in CURVES[table["table"]]:
        at = table["columns"].index(column)
        out.append((label, style, [(size_of(name), value(size_of(name), cells[at]))
                                   for name, cells in table["lines"].items()
                                   if cells[at] and size_of(name) >= least]))
    return out


def picture(tables):
    keys = [("cuMemcpy, page-locked memory", "cuda"), ("GDRCopy 2.6's copies", "gdr"), ("barcopy", "ours")]
    panels = []
    for name, title in (("write", "Writes"), ("read", "Reads")):
        by_style = {style: (label, style, [(size, us) for size, us in points if size <= MOST])
                    for label, style, points in curves_of(tables[name], lambda size, ns: ns / 1000)}
        curves = [(keys[0][0], "cuda", by_style["cuda thin"][2]), by_style["gdr"], by_style["ours"]]
        panels.append((f"{title}: µs for one copy, lower is better", curves))
    return plot.picture("Time of one copy over its size, NVIDIA H200: lower is better", panels, keys)


def plots(tables):
    out = []
    for name, title in (("write", "Writes"), ("read", "Reads")):
        out.append(plot.draw(f"{title}: time of one copy", "µs", "lower",
                             curves_of(tables[name], lambda size, ns: ns / 1000)))
        out.append(plot.draw(f"{title}: bandwidth", "GB/s", "higher",
                             curves_of(tables[name], lambda size, ns: size / ns)))
    return "\n".join(f"<figure>{svg}</figure>" for svg in (out[0], out[2], out[1], out[3]))


def microseconds(ns):
    return f"{ns / 1000:.1f}" if ns >= 2000 else f"{ns / 1000:.2f}"


def make(root):
    readme = read(root, "README.md")
    document = json.loads(read(root, RESULTS))
    tables = {table["table"]: table for table in document["tables"]}

    def figure(table, size, column):
        return microseconds(tables[table]["lines"][size][tables[table]["columns"].index(column)])

    tagline = re.search(r"\*\*(.*?)\*\*\n(.*?)\n\n", readme, re.S)
    values = {
        # Its lines stay: lintian takes a line of 512 characters for a program's output without a source.
        "TAGLINE": html.escape(tagline[1]), "WHAT": re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(tagline[2])),
        "GPU": html.escape(document["gpu"]["name"]), "DRIVER": html.escape(document["gpu"]["kernel_driver"]),
        "ROUNDS": str(document["rounds"]), "RESULTS": os.path.relpath(RESULTS, "docs"),
        "PLOTS": plots(tables),
        "PROGRAM": html.escape(re.search(r"```c\n(.*?)```", readme, re.S)[1].rstrip(), quote=False),
        "COMMAND": html.escape(re.search(r"^cc .*", readme, re.M)[0]),
        "PRINTS": html.escape(re.search(r"^prints `([^`]*)`", readme, re.M)[1]),
    }
    for table in ("write", "read"):
        for size in ("8", "1K", "4K"):
            for column, name in (("library", "OURS"), ("cuMem.pin", "CUDA")):
                values[f"{table.upper()}_{size}_{name}"] = figure(table, size, column)
    template = read(root, "docs/page/index.html.in")
    page = re.sub(r"@([A-Z0-9_]+K?_?[A-Z]*)@", lambda found: values[found[1]], template)
    if unused := [name for name in values if f"@{name}@" not in template and "_" not in name]:
        sys.exit(f"the template does not use {unused}")
    return page


def main():
    words = [word for word in sys.argv[1:] if word != "--picture"]
    root = words[0] if words else os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if len(words) == len(sys.argv) - 1:
        sys.stdout.reconfigure(encoding="utf-8")
        sys.stdout.write(make(root))
        return
    svg = picture({table["table"]: table for table in json.loads(read(root, RESULTS))["tables"]})
    with open(os.path.join(root, PICTURE), "w", encoding="utf-8") as file:
        file.write(svg)


if __name__ == "__main__":
    main()
