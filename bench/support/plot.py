"""Plots of curves as SVG, for pages of results; written without any package."""

import math

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 60, 45, 15, 120
# Colours that people with colour blindness tell apart (Okabe and Ito 2008).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]


def relative_growth(curves, x_title, y_title):
    """Returns a plot of {name: [(x, y)]} on logarithmic axes, each curve over its first point, with a dashed line for
    linear growth."""
    lines = {name: [(x / points[0][0], y / points[0][1]) for x, y in points] for name, points in curves.items()}
    largest_x = max((x for line in lines.values() for x, _ in line), default=1)
    values = [y for line in lines.values() for _, y in line]
    lowest, highest = min([1, *values]), max([largest_x, *values])

    def across(x):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(x) / math.log(max(largest_x, 2))

    def up(y):
        share = math.log(y / lowest) / math.log(max(highest / lowest, 2))
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for power in range(math.ceil(math.log10(lowest)), math.floor(math.log10(highest)) + 1):
        value = 10.0 ** power
        parts.append(line_of([(LEFT, up(value)), (WIDTH - RIGHT, up(value))], "#ddd"))
        parts.append(text_of(LEFT - 6, up(value) + 4, f"{value:g}", "end"))
        if 0 <= power <= math.log10(largest_x):
            parts.append(line_of([(across(value), TOP), (across(value), HEIGHT - BOTTOM)], "#ddd"))
            parts.append(text_of(across(value), HEIGHT - BOTTOM + 16, f"{value:g}", "middle"))
    parts.append(line_of([(across(1), up(1)), (across(largest_x), up(largest_x))], "#888", dashes="5,4"))
    parts.append(text_of(across(largest_x) + 6, up(largest_x) + 4, "linear", "start", "#888"))
    labels = []
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(across(x), up(y)) for x, y in line]
        parts.append(line_of(places, colour, width=2))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        labels.append([places[-1][1], places[-1][0] + 6, name, colour])
    parts += [text_of(x, y + 4, name, "start", colour) for y, x, name, colour in apart(labels)]
    parts.append(text_of((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_title, "middle"))
    parts.append(f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">'
                 f"{y_title}</text>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def apart(labels, distance=14):
    """Moves labels [y, x, ...] down until none covers another."""
    labels = sorted(labels)
    for before, label in zip(labels, labels[1:]):
        label[0] = max(label[0], before[0] + distance)
    return labels


def line_of(places, colour, width=1, dashes=""):
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def text_of(x, y, text, anchor, colour="#333"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
