"""Pictures of figures as SVG: bars of what is published beside ours, and courses over time.

Law: the same figures give the same bytes, on every machine; texts are text, never markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

WIDTH = 760
LEFT, RIGHT, TOP = 190, 70, 52
BAR, GAP, APART = 13, 3, 14
ROW = 30
COURSE_HEIGHT = 240
COLOURS = ("#9aa5b1", "#f37726", "#2f7fb8", "#57a773", "#8e5ea2")
"""Published first, in grey; ours after it. They are told apart by eyes that see no red or green, too."""
DASHES = ("", "", "7 2", "2 2", "7 2 2 2")
"""Lines that cross are told apart in print, too."""
SHORTEST = 0.01
ROUND = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
STYLE = "text{fill:#1f2933;font-size:12px}.b{font-weight:bold;font-size:14px}.s{fill:#52606d;font-size:11px}"


def short(value: float) -> str:
    """Return a figure as the pictures have it."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def bars(title: str, unit: str, series: Sequence[str], groups: Mapping[str, Sequence[float | None]]) -> str:
    """Return bars in groups: of each group one for each series, None where there is no figure."""
    most = max((value for values in groups.values() for value in values if value is not None), default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / (most or 1.0)
    given = {place for values in groups.values() for place, value in enumerate(values) if value is not None}
    shown = [name if place in given else "" for place, name in enumerate(series)]
    parts, y = _legend(shown, lines=False), TOP
    for name, values in groups.items():
        drawn = [(place, value) for place, value in enumerate(values) if value is not None]
        height = len(drawn) * (BAR + GAP) - GAP
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + height / 2 + 4:.1f}" text-anchor="end">{escape(name)}</text>'
        )
        for place, value in drawn:
            width = max(value * scale, 1.0)
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[place]}"/>'
                f'<text class="s" x="{LEFT + width + 5:.1f}" y="{y + BAR - 2}">{short(value)}</text>'
            )
            y += BAR + GAP
        y += APART
    told = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{of} {short(value)} {unit}"
            for of, value in zip(series, values, strict=True)
            if value is not None
        )
        for name, values in groups.items()
    )
    return _document(f"{title} ({unit})", told, y, parts)


def courses(title: str, unit: str, step_s: float, lines: Mapping[str, Sequence[float]]) -> str:
    """Return what several quantities were over hours, each a mean by steps of `step_s`."""
    longest = max(len(values) for values in lines.values())
    most = _round(max(max(values) for values in lines.values()))
    across, up = (WIDTH - LEFT / 3 - RIGHT) / longest, COURSE_HEIGHT / most
    left, floor = LEFT / 3, TOP + COURSE_HEIGHT
    parts = _legend(["", *lines], lines=True)
    for part in range(5):
        value, y = most * part / 4, floor - COURSE_HEIGHT * part / 4
        parts.append(f'<path d="M{left:.0f} {y:.1f}H{WIDTH - RIGHT}" stroke="#d9e2ec" fill="none"/>')
        parts.append(
            f'<text class="s" x="{left - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>'
        )
    hours = longest * step_s / 3600
    every = 120.0 if hours > 72 else 2.0 if hours > 6 else 0.5
    for tick in range(int(hours / every) + 1):
        hour = f"{tick * every / 24:.0f} d" if hours > 72 else f"{short(tick * every)} h"
        x = left + tick * every * 3600 / step_s * across
        parts.append(f'<text class="s" x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{hour}</text>')
    for place, values in enumerate(lines.values(), 1):
        points = "".join(
            f"{'L' if step else 'M'}{left + step * across:.1f} {floor - value * up:.1f}"
            for step, value in enumerate(values)
        )
        parts.append(_line(points, place))
    told = "; ".join(f"{name}: at most {short(max(values))} {unit}" for name, values in lines.items())
    return _document(f"{title} ({unit})", told, floor + 28, parts)


def _line(points: str, place: int) -> str:
    dashes = f' stroke-dasharray="{DASHES[place]}"' if DASHES[place] else ""
    return f'<path d="{points}" fill="none" stroke="{COLOURS[place]}" stroke-width="1.8"{dashes}/>'


def spans(title: str, unit: str, step_s: float, most: float, rows: Mapping[str, Sequence[float]]) -> str:
    """Return when each row has how much, up to `most`: the height of a bar says it, and a number inside."""
    longest = max(len(values) for values in rows.values())
    across = (WIDTH - LEFT - RIGHT) / longest
    parts, y, told = list[str](), TOP - 8, list[str]()
    for name, values in rows.items():
        label = y + ROW / 2 + 4
        parts.append(f'<text x="{LEFT - 8}" y="{label:.1f}" text-anchor="end">{escape(name)}</text>')
        colour = COLOURS[1 + list(rows).index(name) % 2]
        for begins, ends, value in _runs(values):
            x, height = LEFT + begins * across, ROW * value / most
            parts.append(
                f'<rect x="{x:.1f}" y="{y + ROW - height:.1f}" width="{(ends - begins) * across:.1f}" '
                f'height="{height:.1f}" fill="{colour}"/>'
            )
            if (ends - begins) * across > 16:
                parts.append(
                    f'<text x="{x + (ends - begins) * across / 2:.1f}" y="{y + ROW - 4}" '
                    f'text-anchor="middle">{short(value)}</text>'
                )
        found = [
            f"{short(v)} {unit} from {b * step_s:.0f} to {e * step_s:.0f} s" for b, e, v in _runs(values)
        ]
        told.append(f"{name}: {', '.join(found)}")
        parts.append(f'<path d="M{LEFT} {y + ROW}H{WIDTH - RIGHT}" stroke="#9aa5b1" fill="none"/>')
        y += ROW + GAP + (APART if list(rows).index(name) % 2 else GAP)
    for at_s in range(0, int(longest * step_s) + 1, 200):
        x = LEFT + at_s / step_s * across
        parts.append(f'<text class="s" x="{x:.1f}" y="{y + 8}" text-anchor="middle">{at_s} s</text>')
    return _document(f"{title} ({unit})", "; ".join(told), y + 20, parts)


def _runs(values: Sequence[float]) -> list[tuple[int, int, float]]:
    """Return from where to where each value above 0 stands."""
    edges = [at for at in range(1, len(values)) if values[at] != values[at - 1]]
    ends = zip([0, *edges], [*edges, len(values)], strict=True)
    return [(begins, end, values[begins]) for begins, end in ends if values[begins]]


def _round(value: float) -> float:
    """Return the least number from a value on whose quarters are round: ROUND of a power of ten."""
    power = 10.0 ** (log10(value / 4) // 1) if value > 0 else 1.0
    return next(4 * digit * power for digit in ROUND if 4 * digit * power >= value - 1e-9)


def curves(title: str, unit: str, lines: Mapping[str, Sequence[float]], least_share: float = 0.0) -> str:
    """Return distributions by their quantiles: the share, in percent, that is no greater; from a share on.

    The axis is logarithmic; below SHORTEST all is drawn as that.
    """
    values = [max(value, SHORTEST) for quantiles in lines.values() for value in quantiles]
    low, high = log10(min(values)), log10(max(values))
    left, floor = LEFT / 3, TOP + COURSE_HEIGHT
    across, up = (WIDTH - left - RIGHT) / ((high - low) or 1.0), COURSE_HEIGHT / (100 - least_share)
    parts = _legend(["", *lines], lines=True)
    for part in range(5):
        share = least_share + (100 - least_share) * part / 4
        y = floor - (share - least_share) * up
        parts.append(f'<path d="M{left:.0f} {y:.1f}H{WIDTH - RIGHT}" stroke="#d9e2ec" fill="none"/>')
        parts.append(
            f'<text class="s" x="{left - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{short(share)} %</text>'
        )
    for tick in _ticks(low, high):
        x = left + (log10(tick) - low) * across
        parts.append(
            f'<text class="s" x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{short(tick)} {unit}</text>'
        )
    for place, quantiles in enumerate(lines.values(), 1):
        points: list[str] = []
        last = len(quantiles) - 1
        for number, value in enumerate(quantiles):
            share = 100 * number / last
            if share >= least_share:
                x = left + (log10(max(value, SHORTEST)) - low) * across
                points.append(f"{'L' if points else 'M'}{x:.1f} {floor - (share - least_share) * up:.1f}")
        parts.append(_line("".join(points), place))
    told = "; ".join(
        f"{name}: half up to {short(of[len(of) // 2])} {unit}, all up to {short(of[-1])} {unit}"
        for name, of in lines.items()
    )
    return _document(f"{title} (share that is no greater)", told, floor + 28, parts)


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of each power of ten between two logarithms, or the powers alone if they are many."""
    digits = (1, 2, 5) if high - low < 3 else (1,)
    places = range(int(low) - 1, int(high) + 2)
    found = [digit * 10.0**place for place in places for digit in digits]
    return [tick for tick in found if low - 1e-9 <= log10(tick) <= high + 1e-9]


def _legend(series: Sequence[str], *, lines: bool) -> list[str]:
    """Return what is which: a square for bars, a piece of the line with its dashes for lines."""
    parts: list[str] = []
    x = WIDTH / 40
    for place, name in enumerate(series):
        if not name:
            continue  # It has no figures here.
        parts.append(
            _line(f"M{x:.0f} 33H{x + 26:.0f}", place)
            if lines
            else f'<rect x="{x:.0f}" y="27" width="11" height="11" fill="{COLOURS[place]}"/>'
        )
        x += 31 if lines else 16
        parts.append(f'<text x="{x:.0f}" y="37">{escape(name)}</text>')
        x += 18 + 6.6 * len(name)
    return parts


def _document(title: str, told: str, height: float, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-labelledby="t d" font-family="Helvetica, sans-serif">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(told)}</desc>\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>\n'
        f'<text class="b" x="{WIDTH / 40:.0f}" y="18">{escape(title)}</text>\n{body}\n</svg>\n'
    )
