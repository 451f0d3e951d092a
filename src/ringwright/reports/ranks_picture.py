"""The picture of all ranks: a track per rank, calls above compute, the part of a call that was waiting drawn pale."""

from __future__ import annotations

from typing import Any

from ringwright.analysis.document import Summary
from ringwright.reports.overlap import us

WIDTH = 1000.0
TRACK, GAP = 14.0, 8.0
TICKS = 6


def picture(view: Summary, palette: dict[str, int]) -> dict[str, Any] | None:
    """Return the geometry of the picture, or what says why there is none; None where nothing has a duration."""
    data = view["bars"]
    if not data:
        return None
    if data["refused"]:
        return {"refused": data["refused"], "rows": [], "note": ""}
    if not data["bars"]:
        return None
    ranks = sorted({bar["rank"] for bar in data["bars"]})
    both = any(bar["lane"] == "compute" for bar in data["bars"])
    tall = TRACK * (2 if both else 1)
    top = {rank: index * (tall + GAP) for index, rank in enumerate(ranks)}
    scale = WIDTH / max(data["end_us"], 1e-9)
    shapes = [shape for bar in data["bars"] for shape in _shapes(bar, top[bar["rank"]], scale, palette)]
    cut = "" if data["shown"] >= data["of"] else f"{data['of'] - data['shown']:,} further events are left out"
    left = "" if len(ranks) >= data["ranks"] else f"{data['ranks'] - len(ranks)} further ranks are left out"
    return {
        "refused": "",
        "note": "; ".join(part for part in (data["clock"], cut, left) if part),
        "shapes": shapes,
        "height": round(len(ranks) * (tall + GAP), 1),
        "rows": [{"rank": rank, "y": round(top[rank] + tall / 2, 1)} for rank in ranks],
        "ticks": _ticks(data["end_us"]),
    }


def _ticks(end_us: float) -> list[str]:
    """Return the labels of the axis, all in one unit."""
    scale, unit = next(((s, u) for s, u in ((1e6, "s"), (1e3, "ms")) if end_us >= 2 * s), (1.0, "us"))
    return [f"{end_us * tick / TICKS / scale:,.1f} {unit}" for tick in range(TICKS + 1)]


def _shapes(bar: dict[str, Any], top: float, scale: float, palette: dict[str, int]) -> list[dict[str, Any]]:
    """Return the rectangles of one bar: waiting, then transfer."""
    begin = max(bar["start_us"], 0.0)
    end = bar["start_us"] + bar["duration_us"]
    title = f"rank {bar['rank']}: {bar['op']}, {us(bar['duration_us'])}"
    if bar["lane"] == "compute":
        return [_rectangle(begin, end, top + TRACK, scale, "compute", title)]
    colour = f"f{palette.get(bar['op'], 9)}"
    waited = min(bar["wait_us"] or 0.0, bar["duration_us"])
    if not waited:
        return [_rectangle(begin, end, top, scale, colour, title)]
    middle = max(bar["start_us"] + waited, begin)
    said = f"{title}, of which {us(waited)} waiting"
    return [
        _rectangle(begin, middle, top, scale, f"{colour} waiting", said),
        _rectangle(middle, end, top, scale, colour, said),
    ]


def _rectangle(begin: float, end: float, top: float, scale: float, colour: str, title: str) -> dict[str, Any]:
    x = min(begin * scale, WIDTH)
    width = max(min(end * scale, WIDTH) - x, 0.4)
    return {
        "x": round(x, 2),
        "width": round(width, 2),
        "y": round(top, 1),
        "height": TRACK - 1,
        "colour": colour,
        "title": title,
    }
