"""The fault script: lines of ``ringwright.fabrics.faults`` and ``flow 1>2 10Mb/s at 2s for 1s``, sorted by time.

``flow A>B [RATE] [at T] [for T | to T]`` is a competing TCP flow between two ranks; without a rate it takes what TCP gives.
``congestion from all-to-all 64MiB on 0-3`` is such a flow between each two ranks that the collective joins, without an end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ringwright.costs import traffic
from ringwright.costs.corruption import lost_share
from ringwright.fabrics._congestion import congestion, is_congestion
from ringwright.fabrics.faults import LAB_FIELDS, describe_row, rows
from ringwright.ground.errors import UsageError
from ringwright.ground.units import parse_rate, parse_time
from ringwright.model.topology import Fault
from ringwright_lab.network.spec import LabSpec

LEAST_LATENCY_S = 50e-6  # what a frame takes through namespaces anyway
FRAME_BYTES = 1514  # of a full frame
IMPAIRMENTS = ("loss", "latency_s", "jitter_s", "reorder", "ecn")
_FLOW = re.compile(
    r"flow\s+(?P<src>\w+)>(?P<dst>\w+)(?:\s+(?P<rate>(?!at\b|from\b|for\b|to\b|until\b)\S+))?"
    r"(?:\s+(?:at|from)\s+(?P<start>\S+))?(?:\s+(?P<how>for|to|until)\s+(?P<end>\S+))?\s*"
)


@dataclass(frozen=True)
class Flow:
    """A competing TCP flow; ``rate`` in bytes/s, 0 for as much as it gets."""

    src: int
    dst: int
    rate: float
    start_s: float
    end_s: float
    text: str
    number: int  # of the flow, in order of lines


@dataclass(frozen=True)
class Moment:
    """What changes at one time of the script."""

    time_s: float
    rows: tuple[Fault, ...] = ()
    starting: tuple[Flow, ...] = ()
    ending: tuple[Flow, ...] = ()


@dataclass(frozen=True)
class Script:
    """Everything that will happen. ``outside``: lines for which simulations have no model."""

    lines: tuple[str, ...]
    rows: tuple[Fault, ...]
    flows: tuple[Flow, ...]
    outside: tuple[str, ...]

    @property
    def impaired(self) -> frozenset[int]:
        """Links that at some time lose, delay, reorder or mark frames."""
        return frozenset(row.target for row in self.rows if row.kind == "link" and row.field in IMPAIRMENTS)

    @property
    def marks(self) -> bool:
        """Whether any link marks congestion, so that TCP has to speak ECN."""
        return any(row.field == "ecn" for row in self.rows)

    def moments(self) -> list[Moment]:
        """Return what changes, in the order of time."""
        times = {row.time_s for row in self.rows} | {flow.start_s for flow in self.flows}
        times |= {flow.end_s for flow in self.flows if flow.end_s < math.inf}
        return [
            Moment(
                time_s,
                tuple(row for row in self.rows if row.time_s == time_s),
                tuple(flow for flow in self.flows if flow.start_s == time_s),
                tuple(flow for flow in self.flows if flow.end_s == time_s),
            )
            for time_s in sorted(times)
        ]


def read(spec: LabSpec, lines: Iterable[str], *, horizon_s: float, seed: int) -> Script:
    """Return the script of some lines; ``seed`` draws what they leave open. Raises UsageError for lines not understood."""
    texts = [line.partition("#")[0].strip() for line in lines]
    of_lines = {number: each for number, text in enumerate(texts) if (each := _flows(spec, text))}
    flows = [replace(flow, number=at) for at, flow in enumerate(chain.from_iterable(of_lines.values()))]
    # A flow's line stays as an empty one: the lottery of the others goes by their number.
    rest = ["" if number in of_lines else text for number, text in enumerate(texts)]
    effects = _as_losses(rows(spec.topology, rest, horizon_s=horizon_s, seed=seed))
    outside = [texts[number] for number in of_lines if not is_congestion(texts[number])]
    outside += [text for text in rest if text and _is_outside(spec, text)]
    return Script(tuple(text for text in texts if text), tuple(effects), tuple(flows), tuple(outside))


def _as_losses(effects: Sequence[Fault]) -> list[Fault]:
    """Return the rows with bit errors as what they do here: so many frames are lost. UsageError for a link that has both."""
    lossy = {row.target for row in effects if row.field == "loss"}
    both = next((row for row in effects if row.field == "ber" and row.target in lossy), None)
    if both is not None:
        raise UsageError(
            "the lab loses frames by one chance a link: by loss or by ber", remedy="one of the two lines, or simulate"
        )
    formed = (
        replace(row, field="loss", value=lost_share(row.value, FRAME_BYTES)) for row in effects if row.field == "ber"
    )
    kept = [row for row in effects if row.field != "ber"]
    return sorted([*kept, *formed], key=lambda row: row.time_s)


def _is_outside(spec: LabSpec, text: str) -> bool:
    return any(row.field in LAB_FIELDS for row in rows(spec.topology, [text]))


def _flows(spec: LabSpec, text: str) -> list[Flow]:
    """Return the flows of a line: one, of congestion one between each two ranks that its collective joins."""
    if text.split()[:1] == ["flow"]:
        return [_flow(spec, text)]
    if not is_congestion(text):
        return []
    asked = congestion(text, spec.n)
    group = asked.group or tuple(range(spec.n))
    if asked.algorithm:
        raise UsageError(
            "in the lab congestion is flows that never end, by no algorithm",
            where=f"fault '{text}'",
            remedy="leave out 'by'",
        )
    if asked.op == "send-recv":
        ends = [(0, 1)]
    elif asked.op in traffic.RING_OPS:
        ends = [*traffic.ring_edges(asked.op, 1.0, [range(len(group))])]
    elif asked.op in traffic.DIRECT_OPS:
        ends = [*traffic.pairwise_edges(asked.op, 1.0, len(group))]
    else:
        raise UsageError(
            f"the lab has no flows that stand for {asked.op}",
            where=f"fault '{text}'",
            remedy="congestion from all-to-all 64MiB, or flow 1>2",
        )
    return [Flow(group[src], group[dst], 0.0, 0.0, math.inf, text, 0) for src, dst in ends]


def _flow(spec: LabSpec, text: str) -> Flow:
    match = _FLOW.fullmatch(text)
    where = f"fault '{text}'"
    if match is None:
        raise UsageError("this flow is not understood", where=where, remedy="flow 1>2 10Mb/s at 2s for 1s")
    src, dst = (_rank(spec, match[end], where) for end in ("src", "dst"))
    if src == dst:
        raise UsageError("a flow goes from one rank to another", where=where, remedy="flow 1>2 10Mb/s at 2s for 1s")
    start_s = parse_time(match["start"]) if match["start"] else 0.0
    end_s = parse_time(match["end"]) if match["end"] else math.inf
    end_s += start_s if match["how"] == "for" else 0.0
    if end_s <= start_s:
        raise UsageError("it ends before it begins", where=where)
    return Flow(src, dst, parse_rate(match["rate"]) if match["rate"] else 0.0, start_s, end_s, text, 0)


def _rank(spec: LabSpec, name: str, where: str) -> int:
    number = int(name) if name.isdecimal() and len(name) < 10 else spec.topology.find(name)
    if number >= spec.n:
        raise UsageError(f"{spec.topology.name} has no rank {name}", where=where, remedy=f"0 to {spec.n - 1}")
    return number


def told(spec: LabSpec, moment: Moment) -> str:
    """Return what changes at a moment in words."""
    words = [describe_row(spec.topology, row) for row in moment.rows]
    words += [f"flow {flow.src}>{flow.dst} begins" for flow in moment.starting]
    words += [f"flow {flow.src}>{flow.dst} ends" for flow in moment.ending]
    return "; ".join(_folded(words))


def _folded(words: Sequence[str], most: int = 6) -> list[str]:
    return [*words] if len(words) <= most else [*words[:most], f"and {len(words) - most} more"]
