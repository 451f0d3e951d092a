"""What of a fabric's faults stays and what passes: a job's steps are those on what stays, and outages come over them.

A fault that begins late and stays is there in every step that counts. A link that is down or slower for a while and then whole
again is an outage, at its own times, whatever the job does just then; one that comes again and again is one with a period.
Losses, bit errors, buffers, latencies and slow ranks that pass cannot be played within a step: the steps meanwhile are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ringwright.fabrics._fault_lines import REPEATS
from ringwright.fabrics.faults import describe_row, healthy_value
from ringwright.ground.units import format_time
from ringwright.model.topology import Fault

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

RATE = "rate_factor"

NEAR_S = 1e-9
LEAST = ("rate_factor", "compute_factor")  # fields of which less is worse; buffers too, whose 0 is the usual one


@dataclass(frozen=True)
class PassingFault:
    """Links with less than their rate for a while.

    ``segments`` are (begin, end, share of the rate that is left), in seconds from the begin of the first; ``every_s`` from one
    outage to the next, 0 where there is one alone.
    """

    links: tuple[int, ...]
    segments: tuple[tuple[float, float, float], ...]
    every_s: float
    text: str

    @property
    def lasts_s(self) -> float:
        """From its first to its last moment."""
        return self.segments[-1][1]


@dataclass(frozen=True)
class StayingFaults:
    """A machine whose faults are all there from the start, the outages that come over it, and sentences about both.

    ``dead_since_s``: when the first link is down that stays so; 0 where that is from the start, or none is.
    """

    topology: Topology
    passing: tuple[PassingFault, ...] = ()
    told: tuple[str, ...] = ()
    dead_since_s: float = 0.0


def staying(topology: Topology) -> StayingFaults:
    """Return what of a machine's faults a job's steps meet all the time, and what passes."""
    if not any(fault.time_s > 0 for fault in topology.faults):
        return StayingFaults(topology)
    at: dict[tuple[str, int, str], list[Fault]] = {}
    for fault in sorted(topology.faults, key=lambda each: each.time_s):
        at.setdefault((fault.kind, fault.target, fault.field), []).append(fault)
    kept: list[Fault] = []
    told: dict[tuple[str, float, float, bool], list[Fault]] = {}
    episodes: dict[tuple[tuple[float, float, float], ...], list[int]] = {}
    before: dict[tuple[str, float, float], list[Fault]] = {}
    ends = _stays_from(topology, at.values())
    for rows in at.values():
        last = rows[-1]
        healthy = healthy_value(topology, last.target, last.field)
        if (last.value, last.field, last.kind) == (healthy, RATE, "link"):
            if walked := _segments(rows):
                episodes.setdefault(walked, []).append(last.target)
            else:
                told.setdefault((RATE, max(row.value for row in rows), 0.0, False), []).append(rows[0])
            continue
        shown = last if last.value != healthy else _worst([row for row in rows if row.value != healthy])
        if shown is not None and last.value == healthy and last.time_s <= (then := ends.get(last.target, -1.0)):
            before.setdefault((shown.field, shown.value, then), []).append(shown)
            continue
        if shown is not None:
            kept.append(replace(shown, time_s=0.0))
            told.setdefault((shown.field, shown.value, shown.time_s, shown is last), []).append(shown)
    passing = [each for walked, links in episodes.items() for each in _passing(topology, walked, tuple(links))]
    sentences = (*_earlier(topology, before), *_told(topology, told))
    dead_s = min(
        (rows[-1].time_s for rows in at.values() if rows[-1].field == RATE and rows[-1].value <= 0), default=0.0
    )
    return StayingFaults(replace(topology, faults=tuple(kept)), tuple(passing), sentences, dead_s)


def _stays_from(topology: Topology, series: Iterable[Sequence[Fault]]) -> dict[int, float]:
    """Return when what stays of a link's faults begins, by link."""
    begins: dict[int, float] = {}
    for rows in series:
        last = rows[-1]
        if last.kind == "link" and last.value != healthy_value(topology, last.target, last.field):
            begins[last.target] = max(last.time_s, begins.get(last.target, 0.0))
    return begins


def _earlier(topology: Topology, before: dict[tuple[str, float, float], list[Fault]]) -> tuple[str, ...]:
    """Return sentences about what is over on a link when that begins which stays there: no step has both."""
    return tuple(
        f"{_what(topology, rows)}: is over when {format_time(then)} have passed, and the steps shown are those after that"
        for (_, _, then), rows in before.items()
    )


def _what(topology: Topology, rows: Sequence[Fault]) -> str:
    return describe_row(topology, rows[0]) + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")


def _told(topology: Topology, shown: dict[tuple[str, float, float, bool], list[Fault]]) -> tuple[str, ...]:
    """Return a sentence for each field and value that many targets may have alike."""
    lines = []
    for (field, value, since_s, stays), rows in shown.items():
        what = _what(topology, rows)
        if field == RATE and value > 1.0 and not stays:
            lines.append(f"{what}: passes, and is left out, for it only makes links faster")
        elif not stays:
            lines.append(f"{what}: passes, and the steps shown are those meanwhile")
        elif since_s > 0:
            lines.append(f"{what}: stays from {format_time(since_s)} on, and the steps shown are those after that")
    return tuple(lines)


def _worst(rows: Sequence[Fault]) -> Fault | None:
    """Return the row of a field that holds a job up most."""
    if not rows:
        return None
    least = rows[0].field in (*LEAST, "buffer_bytes")
    return (min if least else max)(rows, key=lambda each: each.value)


def _segments(rows: Sequence[Fault]) -> tuple[tuple[float, float, float], ...]:
    """Return (begin, end, share left) of a link whose rate is whole in the end."""
    walked = []
    for row, after in pairwise(rows):
        if row.value < 1.0 and after.time_s > row.time_s:
            walked.append((row.time_s, after.time_s, row.value))
    return tuple(walked)


def _passing(
    topology: Topology, walked: Sequence[tuple[float, float, float]], links: tuple[int, ...]
) -> list[PassingFault]:
    """Return the outages of links: as one with a period, or one by one."""
    outages: list[list[tuple[float, float, float]]] = []
    for each in walked:
        if outages and each[0] <= outages[-1][-1][1] + NEAR_S:
            outages[-1].append(each)
        else:
            outages.append([each])
    shapes = [tuple((b - out[0][0], e - out[0][0], left) for b, e, left in out) for out in outages]
    begins = [out[0][0] for out in outages]
    apart = [later - sooner for sooner, later in pairwise(begins)]
    if len(outages) >= REPEATS and _alike(shapes) and max(apart) - min(apart) <= NEAR_S:
        return [_named(topology, links, shapes[0], apart[0])]
    return [_named(topology, links, shape, 0.0) for shape in dict.fromkeys(shapes)]


def _alike(shapes: Sequence[tuple[tuple[float, float, float], ...]]) -> bool:
    return all(
        len(each) == len(shapes[0])
        and all(
            abs(a - b) <= NEAR_S
            for one, other in zip(each, shapes[0], strict=True)
            for a, b in zip(one, other, strict=True)
        )
        for each in shapes
    )


def _named(
    topology: Topology, links: tuple[int, ...], shape: tuple[tuple[float, float, float], ...], every_s: float
) -> PassingFault:
    ends = [{topology.label(int(node[link])) for node in (topology.src, topology.dst)} for link in links]
    shared = set.intersection(*ends) if len(links) > 1 else ends[0]
    who = "--".join(sorted(shared)) if shared else f"{len(links)} links"
    least = min(left for _, _, left in shape)
    how = "down" if least <= 0 else f"at {least:.0%} of its rate"
    often = f" every {format_time(every_s)}" if every_s else ""
    return PassingFault(links, shape, every_s, f"{who}: {how} for {format_time(shape[-1][1])}{often}")
