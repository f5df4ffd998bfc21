# SPDX-License-Identifier: MIT
"""The page's diagrams that are no curves, as SVG in the page's colours: the two ways to GPU memory, the
layers of the library, the order of the backends, pairs of bars. They are given names and texts, and draw them.
narrow(): a picture's content as a list, which a narrow screen shows in its place."""
import html


def text(x, y, words, style="label", anchor="middle"):
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>'


def box(x, y, width, height, style="box"):
    return f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="7"/>'


def arrow(*points, style="arrow"):
    return f'<polyline class="{style}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'


def svg(width, height, label, parts):
    marker = ('<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
              'markerHeight="7" orient="auto-start-reverse"><path class="head" d="M0 1 10 5 0 9z"/></marker>'
              '<marker id="fast" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" '
              'markerHeight="6" orient="auto-start-reverse"><path class="fasthead" d="M0 1 10 5 0 9z"/>'
              '</marker></defs>')
    return (f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}">\n'
            + marker + "\n" + "\n".join(parts) + "\n</svg>")


def narrow(rows):
    """rows: [(name, words)...]"""
    return "\n".join(["<dl>", *(f"<dt>{html.escape(name)}</dt><dd>{html.escape(words)}</dd>" for name, words in rows),
                      "</dl>"])


def ways(with_cuda, with_barcopy):
    """What 8 bytes go through, from the program to GPU memory: as CUDA copies them, and as we do."""
    stations = [("program", 20), ("CUDA", 190), ("GPU driver's queue", 350), ("GPU's copy engine", 540)]
    parts = []
    for name, x in stations:
        parts += [box(x, 26, 150 if x > 300 else 130, 46), text(x + (75 if x > 300 else 65), 54, name)]
    parts += [box(760, 26, 150, 150, "box memory"), text(835, 106, "GPU memory", "label strong")]
    for left, right in ((150, 190), (320, 350), (500, 540), (690, 760)):
        parts.append(arrow((left, 49), (right - 3, 49)))
    parts += [text(455, 96, f"cuMemcpy of 8 bytes: {with_cuda} µs", "note"),
              box(20, 130, 130, 46), text(85, 158, "program"),
              arrow((150, 153), (756, 153), style="arrow fast"),
              box(395, 132, 220, 42, "box accent"), text(505, 158, "BAR1: a window over PCIe", "label"),
              text(270, 143, "a plain store", "note"),
              text(505, 196, f"barcopy: {with_barcopy} µs", "note strong")]
    return svg(930, 206, "The way of a small copy, with CUDA alone and with barcopy", parts)


def bars(rows):
    """rows: [(size, us without, us with)]"""
    parts, scale, step = [], 600 / max(without for _, without, _ in rows), 62
    for number, (size, without, ours) in enumerate(rows):
        y = 12 + number * step
        parts.append(text(110, y + 27, size, "label", "end"))
        for place, (style, value) in enumerate((("cuda", without), ("ours", ours))):
            words = f"{value:g} µs" + ("" if number else (" without", " with barcopy")[place])
            parts += [f'<rect class="bar {style}" x="124" y="{y + place * 22}" width="{value * scale:.1f}" height="19" rx="3"/>',
                      text(round(132 + value * scale), y + 14 + place * 22, words, "note", "start")]
    return svg(930, 12 + len(rows) * step, "UCX with and without barcopy, by message size", parts)


def layers(levels, outside):
    """levels: [(name, what it does)...] from the top down; outside: {name: what it reaches}."""
    parts, height, step = [], 46, 56
    parts += [box(20, 8, 560, 38, "box memory"),
              text(300, 32, "programs: UCX, MPI, NCCL, Python, yours", "label")]
    for number, (name, what) in enumerate(levels):
        y = 66 + number * step
        parts += [box(20, y, 560, height), text(40, y + 29, name, "label strong mono", "start"),
                  text(140, y + 28, what, "note left", "start")]
        if name in outside:
            parts += [arrow((580, y + 23), (627, y + 23)), box(630, y, 280, height, "box accent"),
                      text(770, y + 28, outside[name], "note strong")]
    bottom = 66 + len(levels) * step
    parts += [arrow((8, 66), (8, bottom - 12)),
              text(20, bottom + 8, "Each layer includes and calls those below it, never one above.", "note left",
                   "start")]
    return svg(930, bottom + 20, "The layers of the library", parts)


def flow(first, backends):
    """first: (name, uses, serves) of what is asked before the order; backends: the others in order."""
    parts, x, width, step = [], 290, 350, 86
    parts += [box(x, 6, width, 44, "box memory"),
              text(x + width / 2, 33, "gdr_pin_buffer(address, size)", "label mono"),
              arrow((x + width / 2, 50), (x + width / 2, 71))]
    rows = [(f"{first[0]}: memory of the CPU?", first[1], first[2])]
    rows += [(f"{number}.  {name}", uses, serves) for number, (name, uses, serves) in enumerate(backends, 1)]
    for number, (name, uses, serves) in enumerate(rows):
        y = 74 + number * step
        parts += [box(x, y, width, 58, "box accent" if number else "box"),
                  text(x + width / 2, y + 24, name, "label strong"), text(x + width / 2, y + 45, uses, "note"),
                  arrow((x + width, y + 29), (x + width + 57, y + 29), style="arrow fast"),
                  text(x + width + 27, y + 20, "yes", "note strong"),
                  box(x + width + 60, y + 6, 220, 46, "box memory"),
                  text(x + width + 170, y + 34, serves, "note strong"),
                  arrow((x + width / 2, y + 58), (x + width / 2, y + step - 3)),
                  text(x + width / 2 + 12, y + 77, "no" + (", and its reason is kept" if number else ""),
                       "note left", "start")]
    y = 74 + len(rows) * step
    parts += [box(x, y, width, 58, "box refused"), text(x + width / 2, y + 24, "an error", "label strong"),
              text(x + width / 2, y + 45, "barcopy_last_error() lists each backend's reason", "note"),
              text(20, 98, "Host memory needs no driver,", "note left", "start"),
              text(20, 116, "so it is asked about first.", "note left", "start"),
              text(20, 98 + step, "Then each backend in order,", "note left", "start"),
              text(20, 116 + step, "until one can serve the memory.", "note left", "start"),
              text(20, 134 + step, "GDRCOPY_BACKEND changes it.", "note left", "start")]
    return svg(930, y + 66, "The order in which backends are asked to serve a pin", parts)
