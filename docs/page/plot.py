# SPDX-License-Identifier: MIT
"""One diagram of curves over sizes, both axes logarithmic, as SVG with title and legend in HTML, which takes
its colours from the page's style sheet. Knows nothing of what it draws."""
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
            yield (f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" '
                   f'text-anchor="middle">{size_text(2 ** power)}</text>')


def draw(title, unit, curves):
    """curves: [(label, style class, [(size, value)...])...]; the last drawn lies on top."""
    axes = Axes([point for _, _, points in curves for point in points])
    keys = "".join(f'<span class="key {style}">{html.escape(label)}</span>' for label, style, _ in curves)
    svg = [f'<figcaption>{html.escape(title)} <i>{html.escape(unit)}</i></figcaption><div class="legend">{keys}</div>',
           f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">', *grid(axes)]
    for label, style, points in curves:
        path = " ".join(f"{axes.x(size):.1f},{axes.y(value):.1f}" for size, value in points)
        svg.append(f'<polyline class="curve {style}" points="{path}"/>')
        for size, value in points:
            svg.append(f'<circle class="dot {style}" cx="{axes.x(size):.1f}" cy="{axes.y(value):.1f}" r="2.6">'
                       f'<title>{html.escape(label)}, {size_text(size)}: {value_text(value)} '
                       f'{html.escape(unit)}</title></circle>')
    return "\n".join(svg + ["</svg>"])
