# SPDX-License-Identifier: MIT
"""The page's diagrams that are no curves, as SVG in the page's colours: the two ways to GPU memory, pairs of bars.
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
