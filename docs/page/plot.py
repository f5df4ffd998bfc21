# SPDX-License-Identifier: MIT
"""Diagrams of curves over sizes, both axes logarithmic: draw() for the page, as SVG with title and legend in HTML,
which takes its colours from the page's style sheet; picture() for a document, as an SVG file of its own. Knows nothing
of what it draws."""
import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 320, 70, 14, 14, 36


def size_text(size):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def value_text(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


class Axes:
    def __init__(self, points):
        self.left = math.log2(min(x for x, _ in points))
        self.right = math.log2(max(x for x, _ in points))
        self.low = math.floor(math.log10(min(y for _, y in points)) * 2) / 2
        self.high = math.ceil(math.log10(max(y for _, y in points)) * 2) / 2

    def x(self, size):
        return LEFT + (math.log2(size) - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def grid(axes):
    for power in range(math.ceil(axes.low), math.floor(axes.high) + 1):
        y = axes.y(10 ** power)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** power:g}</text>'
    for power in range(math.ceil(axes.left), math.floor(axes.right) + 1):
        if power % 4 == 2 or (power == axes.left and power % 4 != 1):
            x = axes.x(2 ** power)
            yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'
            yield (f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 25}" '
                   f'text-anchor="middle">{size_text(2 ** power)}</text>')


def line(axes, style, points):
    path = " ".join(f"{axes.x(size):.1f},{axes.y(value):.1f}" for size, value in points)
    return f'<polyline class="curve {style}" points="{path}"/>'


# Of a file of its own: it is seen on light and on dark pages, so it brings its background.
STYLE = """.paper { fill: #ffffff; } text { fill: #1b2430; font: 14px "DejaVu Sans", "Segoe UI", Roboto, Arial, sans-serif; }
.title { font-weight: 600; font-size: 16px; } text.tick { fill: #5b6776; font-size: 13px; }
.grid { stroke: #d9dfe7; } .curve { fill: none; stroke-width: 3; stroke-linejoin: round; }
.ours { stroke: #0b6e4f; } .cuda { stroke: #c2571a; } .gdr { stroke: #5b6776; stroke-width: 2; }
@media (prefers-color-scheme: dark) { .paper { fill: #12171e; } text { fill: #e6ebf1; } text.tick { fill: #9aa7b6; }
.grid { stroke: #303a47; } .ours { stroke: #41c795; } .cuda { stroke: #f0924f; } .gdr { stroke: #9aa7b6; } }"""


def picture(label, panels, keys):
    """panels: [(title, curves as in draw())...], side by side, with the same axes; keys: [(label, style class)...], one legend for all."""
    top, width, height = 62, WIDTH * len(panels), HEIGHT + 62
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
           f'aria-label="{html.escape(label)}">', f"<style>\n{STYLE}\n</style>",
           f'<rect class="paper" width="{width}" height="{height}"/>']
    for number, (text, style) in enumerate(keys):
        x = LEFT + number * 300
        svg.append(f'<line class="curve {style}" x1="{x}" y1="20" x2="{x + 30}" y2="20"/>'
                   f'<text x="{x + 38}" y="25">{html.escape(text)}</text>')
    axes = Axes([point for _, curves in panels for _, _, points in curves for point in points])
    for number, (title, curves) in enumerate(panels):
        svg += [f'<g transform="translate({number * WIDTH} {top})">',
                f'<text class="title" x="{LEFT}" y="-4">{html.escape(title)}</text>', *grid(axes),
                *(line(axes, style, points) for _, style, points in curves), "</g>"]
    return "\n".join(svg + ["</svg>", ""])


def draw(title, unit, better, curves):
    """better: "lower" or "higher"; curves: [(label, style class, [(size, value)...])...], the last drawn lies on top."""
    axes = Axes([point for _, _, points in curves for point in points])
    keys = "".join(f'<span class="key {style}">{html.escape(label)}</span>' for label, style, _ in curves)
    svg = [f'<figcaption>{html.escape(title)} <i>{html.escape(unit)}, {better} is better</i></figcaption><div class="legend">{keys}</div>',
           f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">', *grid(axes)]
    for label, style, points in curves:
        svg.append(line(axes, style, points))
        for size, value in points:
            svg.append(f'<circle class="dot {style}" cx="{axes.x(size):.1f}" cy="{axes.y(value):.1f}" r="2.6">'
                       f'<title>{html.escape(label)}, {size_text(size)}: {value_text(value)} '
                       f'{html.escape(unit)}</title></circle>')
    return "\n".join(svg + ["</svg>"])
