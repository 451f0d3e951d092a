"""Loss over training steps, one line for each way to train, as an SVG that stands by itself: light or dark as the reader is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ringwright.ground.errors import UsageError

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 1000, 520, 60, 14, 40, 330
ROW = 20
LAST = 5
TICKS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
# The colours of the pages, each once more, lighter, where there are more lines than colours.
LIGHT = "#2a6fdb #d9730d #1f8a5b #8250c8 #c93c37 #0f8b9d #a87d00 #c2488f #5b6675".split()
DARK = "#6ea8fe #f0a35e #5fc596 #b493f0 #f0837f #56c7d4 #dcb94d #e88bc0 #98a4b3".split()


@dataclass(frozen=True)
class LearningCurve:
    """Loss on what nobody trained on, every so many steps; ``is_fed_back``: drawn as dashes."""

    name: str
    losses: tuple[float, ...]
    is_fed_back: bool = False

    @property
    def last(self) -> float:
        """The mean of the last five."""
        last = self.losses[-LAST:]
        return sum(last) / len(last)


def learning_curves(
    curves: Sequence[LearningCurve],
    *,
    every: int,
    band: tuple[float, float] | None = None,
    floor: float | None = None,
) -> str:
    """Return the curves as SVG: loss on a logarithmic axis over steps, the legend in the order of their last losses.

    ``every``: steps between two losses. ``band``: last losses of what is compared with, shaded; ``floor``: the least loss.
    UsageError where there is nothing to draw.
    """
    known = [loss for curve in curves for loss in curve.losses if 0 < loss < math.inf]
    if not known:
        raise UsageError("there is no loss to draw", remedy="one curve or more with losses above zero")
    marks = [*known, *(band or ()), *([floor] if floor else [])]
    low, high = math.log(min(marks)), math.log(max(marks))
    span = max(high - low, 0.05)

    def down(loss: float) -> float:
        return TOP + (high - math.log(min(max(loss, min(marks)), max(marks)))) / span * (HEIGHT - TOP - BOTTOM)

    steps = every * max(len(curve.losses) for curve in curves)
    names = list(dict.fromkeys(curve.name for curve in curves))
    ranked = sorted(curves, key=lambda each: each.last if math.isfinite(each.last) else math.inf)
    parts = [*_ticks(low, high, down), *_over(steps), *_around(band, floor, down)]
    for row, curve in enumerate(ranked):
        parts += _line(curve, names.index(curve.name), row, every, steps, down)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Loss over steps">'
    return "\n".join((head, _style(), *parts, "</svg>\n"))


def _style() -> str:
    """Return colours for both kinds of reader."""
    light = "".join(f".k{at}{{stroke:{each}}}" for at, each in enumerate(LIGHT))
    dark = "".join(f".k{at}{{stroke:{each}}}" for at, each in enumerate(DARK))
    usual = "svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#1b2430}.rule{stroke:#dfe3e9}.floor{stroke:#5b6675}"
    usual += (
        "polyline,path{fill:none;stroke-width:2}.again{stroke-opacity:.5}.fed{stroke-dasharray:6 4}.band{fill:#cfe0f8}"
    )
    night = "svg{background:#10151c}text{fill:#e4e9f0}.rule{stroke:#2a323e}.floor{stroke:#98a4b3}.band{fill:#26446e}"
    return f"<style>{usual}{light}@media (prefers-color-scheme:dark){{{night}{dark}}}</style>"


def _ticks(low: float, high: float, down: Callable[[float], float]) -> list[str]:
    """Return rules at round losses, with their figures."""
    values = [power * digit for power in (10.0**exponent for exponent in range(-6, 7)) for digit in TICKS]
    parts = []
    for value in values:
        if low <= math.log(value) <= high:
            y = down(value)
            parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - LEGEND}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    return parts


def _over(steps: int) -> list[str]:
    """Return the figures below: quarters of all steps."""
    return [
        f'<text x="{_across(steps * quarter / 4, steps):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{text}</text>'
        for quarter in range(5)
        for text in [f"{round(steps * quarter / 4):,}" + (" steps" if quarter == 4 else "")]
    ]


def _around(band: tuple[float, float] | None, floor: float | None, down: Callable[[float], float]) -> list[str]:
    """Return the band and the floor."""
    parts = []
    if band is not None:
        tall = max(1.0, down(band[0]) - down(band[1]))
        across = f'x="{LEFT}" width="{WIDTH - LEGEND - LEFT}"'
        parts.append(f'<rect class="band" {across} y="{down(band[1]):.1f}" height="{tall:.1f}"/>')
    if floor:
        y = down(floor)
        parts.append(f'<line class="floor" x1="{LEFT}" x2="{WIDTH - LEGEND}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT + 6}" y="{y - 6:.1f}">least possible: {floor:.3f}</text>')
    return parts


def _across(step: float, steps: int) -> float:
    return LEFT + step / steps * (WIDTH - LEFT - LEGEND)


def _line(
    curve: LearningCurve, number: int, row: int, every: int, steps: int, down: Callable[[float], float]
) -> list[str]:
    """Return a curve and its row of the legend."""
    shown = [(every * (at + 1), loss) for at, loss in enumerate(curve.losses) if 0 < loss < math.inf]
    course = " ".join(f"{_across(step, steps):.1f},{down(loss):.1f}" for step, loss in shown)
    classes = (
        f"k{number % len(LIGHT)}" + (" again" if number >= len(LIGHT) else "") + (" fed" if curve.is_fed_back else "")
    )
    said = escape(f"{curve.name}{', fed back' if curve.is_fed_back else ''}")
    y = TOP + 8 + ROW * row
    return [
        f'<polyline class="{classes}" points="{course}"><title>{said}</title></polyline>',
        f'<path class="{classes}" d="M{WIDTH - LEGEND + 14} {y}h26"/>',
        f'<text x="{WIDTH - LEGEND + 48}" y="{y + 4}">{said}: {curve.last:.3f}</text>',
    ]
