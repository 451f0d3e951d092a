"""The timeline of all ranks in a report: a row for a rank's calls, one for its compute; what waited of a call is drawn pale."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.analysis.summary_view import SeenBar, SeenSummary

COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class RankRow:
    """A row of the timeline: of which rank, calls or compute, and how many events it has."""

    label: str
    rank: int
    host: str
    track: str
    events: int


@dataclass(frozen=True, slots=True)
class RanksPicture:
    """What the page's timeline draws, or why there is none.

    ``events`` are [row, start in us, duration, operation, share that waited in %].
    """

    refused: str
    rows: list[RankRow] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    end_us: float = 0.0
    note: str = ""
    events: list[list[float]] = field(default_factory=list)


def picture(view: SeenSummary) -> RanksPicture | None:
    """Return the timeline of all ranks; None where nothing has a duration."""
    data = view.bars
    if not data:
        return None
    if data.refused:
        return RanksPicture(data.refused)
    bars = data.bars
    if not bars:
        return None
    tracks = sorted({(bar.rank, bar.track == COMPUTE) for bar in bars})
    row_of = {track: row for row, track in enumerate(tracks)}
    spent: dict[str, float] = {}
    for bar in bars:
        name = _operation(bar)
        spent[name] = spent.get(name, 0.0) + bar.duration_us
    operations = sorted(spent, key=lambda name: (-spent[name], name))
    events = [_event(bar, row_of, operations) for bar in bars]
    cut = "" if data.shown >= data.of else f"{data.of - data.shown:,} further events are left out"
    ranks = len({bar.rank for bar in bars})
    left = "" if ranks >= data.ranks else f"{data.ranks - ranks} further ranks are left out"
    whole = "ringwright serve draws all" if cut or left else ""
    return RanksPicture(
        refused="",
        rows=[
            RankRow(
                label=f"rank {rank}",
                rank=rank,
                host="",
                track=COMPUTE if computes else "calls",
                events=sum(event[0] == row for event in events),
            )
            for row, (rank, computes) in enumerate(tracks)
        ],
        operations=operations,
        end_us=data.end_us,
        note="; ".join(part for part in (data.clock, cut, left, whole) if part),
        events=events,
    )


def _operation(bar: SeenBar) -> str:
    return COMPUTE if bar.track == COMPUTE else str(bar.op)


def _event(bar: SeenBar, row_of: dict[tuple[int, bool], int], operations: list[str]) -> list[float]:
    """Return one event; what began before the stretch is cut at its begin."""
    begin = max(bar.start_us, 0.0)
    length = max(bar.start_us + bar.duration_us - begin, 0.0)
    waited = min(max(bar.wait_us or 0.0, 0.0) / bar.duration_us, 1.0) * 100 if bar.duration_us else 0.0
    row = row_of[bar.rank, bar.track == COMPUTE]
    return [row, round(begin, 3), round(length, 3), operations.index(_operation(bar)), round(waited)]
