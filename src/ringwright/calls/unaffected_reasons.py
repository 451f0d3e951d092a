"""What one fault changed in a run, and the reasons that can be read off it for why its time is the same.

Each reason looks at one thing that was simulated (who crosses a link and when, its queue, what was lost and sent again, which
messages came later) and says nothing where that does not explain the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.costs.corruption import lost_share
from ringwright.costs.protocols import ADAPTIVE, ONE
from ringwright.engines.packets.carriage import inside
from ringwright.engines.result import loads
from ringwright.ground.units import PS, format_count, format_size, format_time, format_us

if TYPE_CHECKING:
    from ringwright.engines.packets.run import Packets
    from ringwright.engines.result import Run
    from ringwright.fabrics._fault_lines import FaultEffect
    from ringwright.model.topology import Topology

UNKNOWN = "no effect on the time; not known why"
HEALTHY = {"rate_factor": 1.0, "compute_factor": 1.0, "loss": 0.0, "ber": 0.0, "added_latency_s": 0.0}
RARE = 0.1  # packets that may be lost of all without anybody wondering that none was


@dataclass(frozen=True)
class FaultPair:
    """Runs of one program without a fault and with it, and what the fault changes before the end."""

    well: Run
    ill: Run
    top: Topology
    effects: tuple[FaultEffect, ...]
    more_us: float
    later_us: float  # in one draw of twenty, where losses are drawn

    @cached_property
    def links(self) -> np.ndarray:
        """The links that the fault is about. int64 of shape (links,)."""
        return np.unique([link for each in self.effects if each.kind == "link" for link in each.targets]).astype(int)

    @cached_property
    def crossing(self) -> np.ndarray:
        """Which messages cross a link by their own path; none where they stand for others. bool of shape (messages,)."""
        flat = self.ill.flat
        if flat is None or self.ill.folded or len(self.ill.end_ps) != flat.n_messages:
            return np.zeros(0, bool)
        owner = np.repeat(np.arange(len(flat.hop_starts) - 1), np.diff(flat.hop_starts))
        crossing = np.zeros(flat.n_messages, bool)
        crossing[owner[np.isin(flat.hops, self.links)]] = True
        return crossing

    @cached_property
    def carried(self) -> tuple[float, float]:
        """Bytes over these links with the fault and without it, of packets their acknowledgements too."""
        return tuple(float(run.bytes[self.links].sum()) if len(run.bytes) else -1.0 for run in (self.ill, self.well))  # type: ignore[return-value]

    @cached_property
    def busiest(self) -> tuple[int, float]:
        """Which of these links is busy for the largest share of the time, at its healthy rate."""
        if not len(self.ill.busy_ps) or not len(self.links):
            return -1, 0.0
        link = int(self.links[self.ill.busy_ps[self.links].argmax()])
        return link, float(self.ill.busy_ps[link]) / max(self.ill.time_ps, 1)

    @property
    def packets(self) -> Packets | None:
        """What packets met with the fault."""
        return self.ill.packets

    def named(self) -> str:
        """Return the links in words."""
        if len(self.links) > 1:
            return f"these {format_count(len(self.links))} links"
        return self.label(int(self.links[0]))

    def label(self, link: int) -> str:
        """Return a link in words."""
        return f"{self.top.label(int(self.top.src[link]))} > {self.top.label(int(self.top.dst[link]))}"


def _unchanged(pair: FaultPair) -> str:
    """What the fault sets is what a healthy link or rank has."""
    values = {(each.field, each.value) for each in pair.effects}
    if all(HEALTHY.get(field) == value for field, value in values):
        return "that is what a healthy one has"
    if {field for field, _ in values} == {"latency_s"}:
        here = pair.top.latency_s[pair.links]
        if len(here) and all((here == value).all() for _, value in values):
            return "that is the latency which it has"
    return ""


def _elsewhere(pair: FaultPair) -> str:
    """Nothing crosses the links, or what crossed them goes around."""
    if not len(pair.links):
        return ""
    now, before = pair.carried
    if now == before == 0:
        return f"no message of this program crosses {pair.named()}"
    if now == 0 < before:
        return f"nothing crosses {pair.named()}: the {format_size(before)} that would without the fault go around"
    return ""


def _adding(pair: FaultPair) -> str:
    """A slow rank: whether it adds anything, and for how long."""
    ranks = [rank for each in pair.effects if each.kind == "rank" for rank in each.targets]
    if not ranks or pair.ill.machine is None:
        return ""
    names = pair.top.label(ranks[0]) if len(ranks) == 1 else f"these {len(ranks)} ranks"
    adders = pair.ill.machine.reducer[ranks]
    compute = f"a collective alone has no compute of {names} to slow"
    compute += f": in a job it would come late (--model, or --arrivals late:{ranks[0]}=2ms)"
    if (adders < 0).all():
        return f"{compute}; adding takes no time on this fabric (its rate is not given)"
    if not len(pair.ill.bytes):
        return ""
    adders = adders[adders >= 0]
    if not pair.ill.bytes[adders].sum():
        return f"{compute}; {names} adds nothing in this program"
    if _little(pair):
        return ""
    slow = min(each.value for each in pair.effects)
    share = float(pair.ill.busy_ps[adders].max()) / slow / max(pair.ill.time_ps, 1)
    return f"adding has slack: {names} adds for {share:.0%} of the time, slow as it is" if share < 1 else ""


def _meanwhile(pair: FaultPair) -> str:
    """While the fault lasts nothing is under way over its links."""
    if not pair.crossing.any() or any(each.end_s > pair.ill.time_s for each in pair.effects):
        return ""
    start_ps, end_ps = pair.ill.start_ps[pair.crossing], pair.ill.end_ps[pair.crossing]
    for each in pair.effects:
        if ((start_ps < each.end_s * PS) & (end_ps > each.start_s * PS)).any():
            return ""
    first, last = min(each.start_s for each in pair.effects), max(each.end_s for each in pair.effects)
    return f"no message is on {pair.named()} while it lasts (from {format_time(first)} to {format_time(last)})"


def _on_the_link(pair: FaultPair) -> str:
    """Inside a host what is lost is sent again by the link itself, which is a thinner one."""
    if pair.effects[0].field not in ("loss", "ber") or not inside(pair.top)[pair.links].all():
        return ""
    link, share = pair.busiest
    kind = pair.top.classes[int(pair.top.link_class[link])]
    return (
        f"{kind} sends again on the link what it loses, and has slack: it is busy for {share:.0%} of the time at most"
    )


def _not_followed(pair: FaultPair) -> str:
    if pair.effects[0].field == "buffer_bytes" and pair.packets is None:
        return f"a buffer acts on packets, and the {pair.ill.engine} engine follows none"
    return ""


def _lost(pair: FaultPair) -> str:
    """Losses and bit errors between hosts, by packets."""
    met, field = pair.packets, pair.effects[0].field
    if met is None or field not in ("loss", "ber"):
        return ""
    wire = met.protocol.payload_bytes + met.protocol.header_bytes
    value, crossed = max(each.value for each in pair.effects), pair.carried[0] / wire
    share = value if field == "loss" else lost_share(value, wire)
    lost = int(met.port_lost[pair.links].sum())
    if field == "ber" and share * crossed < RARE and not lost:
        return (
            f"forward error correction mends bit errors of {value:g}: it leaves {share:.0e} of the packets broken,"
            f" and about {crossed:,.0f} cross {pair.named()}"
        )
    if pair.later_us > pair.ill.time_s * 1e6 * (1 + 1e-3):
        late = format_us(pair.later_us / 1e6)
        return f"half of the draws lose nothing that costs time; one of twenty takes {late} and longer"
    if not lost:
        return (
            f"none of the about {crossed:,.0f} packets that crossed {pair.named()} was lost in the first draw: in the mean"
            f" one of {1 / share:,.0f} is"
        )
    if not met.retransmitted_bytes:
        return f"only {lost:,} acknowledgements were lost, for which the following ones stand"
    return ""


def _answers(pair: FaultPair) -> str:
    """Nothing but acknowledgements crosses the links."""
    flat, met = pair.ill.flat, pair.packets
    if flat is None or met is None or met.protocol.routing != ONE or pair.effects[0].field == "buffer_bytes":
        return ""
    if _by_own_path(pair.ill)[pair.links].any() or not pair.carried[0]:
        return ""
    return f"only acknowledgements cross {pair.named()}, {format_size(pair.carried[0])}, and no message waits for them"


def _queued(pair: FaultPair) -> str:
    """Buffers: how long the queues were."""
    met = pair.packets
    if met is None or pair.effects[0].field != "buffer_bytes":
        return ""
    most, size = int(met.port_most[pair.links].max(initial=0)), min(each.value for each in pair.effects)
    wire = met.protocol.payload_bytes + met.protocol.header_bytes
    if not most:
        return f"no packet had another in front of it in the queue of {pair.named()}"
    full = int(met.port_drops[pair.links].sum()) or met.pauses or most + wire > size
    if not full:
        return f"the longest queue was {format_size(most)}, of {format_size(size)}"
    dropped = f"{met.drops:,} packets were dropped and sent again" if met.drops else ""
    waited = "" if dropped else "a full queue made senders wait, with nothing lost"
    if pair.ill.bottleneck and abs(pair.ill.utilisation - pair.well.utilisation) < 0.02:
        busy = (
            f"{pair.ill.bottleneck}, the busiest link, is busy for {pair.ill.utilisation:.0%} of the time as without it"
        )
        return f"the queue was full at times; {dropped or waited}; {busy}"
    return ""


def _around(pair: FaultPair) -> str:
    """Packets that may take several paths left the links."""
    met = pair.packets
    if met is None or met.protocol.routing == ONE:
        return ""
    now, before = pair.carried
    if now < 0.99 * before:
        how = "take the least loaded of several paths" if met.protocol.routing == ADAPTIVE else "are sprayed over paths"
        return f"{met.protocol.name} packets {how}: {format_size(now)} cross {pair.named()}, {format_size(before)} without it"
    return ""


def _little(pair: FaultPair) -> str:
    """The fault costs something, and it is little."""
    if pair.more_us * 1e6 <= 1:  # a picosecond
        return ""
    return f"it adds {format_us(pair.more_us / 1e6)}, less than a thousandth of the time"


def _slack(pair: FaultPair) -> str:
    """Messages may come later; others end the collective."""
    ill, well = pair.ill, pair.well
    alike = len(ill.end_ps) == len(well.end_ps) > 0 and not well.folded and len(pair.links)
    if not alike or ill.time_ps > well.time_ps * (1 + 1e-9):
        return ""
    later_ps = int((ill.end_ps - well.end_ps).max())
    link, share = pair.busiest
    busy = f"{pair.label(link)} is busy for {share:.0%} of the time at its healthy rate"
    if later_ps <= 0:
        return f"it has slack: {busy}, and no message comes later"
    return f"it has slack: {busy}; a message comes up to {format_us(later_ps / PS)} later, but nothing waits for it"


REASONS: tuple[Callable[[FaultPair], str], ...] = (
    _unchanged,
    _elsewhere,
    _adding,
    _meanwhile,
    _on_the_link,
    _not_followed,
    _lost,
    _answers,
    _queued,
    _around,
    _little,
    _slack,
)


def of_hash(pair: FaultPair) -> str:
    """All flows on one route of several equal ones: who takes another, and what that link has to do."""
    met = pair.packets
    if met is not None and met.protocol.routing != ONE:
        how = "by load" if met.protocol.routing == ADAPTIVE else "in turn"
        return f"{met.protocol.name} takes all equal paths {how}, whatever a hash would choose"
    now, before = _by_own_path(pair.ill), _by_own_path(pair.well)
    if not len(now) or len(now) != len(before):
        return UNKNOWN
    if np.array_equal(now, before):
        return "no message of this program takes another route by it"
    changed = np.flatnonzero((now != before)[: pair.top.n_links])
    link = int(changed[pair.ill.busy_ps[changed].argmax()])
    share = float(pair.ill.busy_ps[link]) / max(pair.ill.time_ps, 1)
    return f"flows meet on {pair.label(link)}, which has slack: it is busy for {share:.0%} of the time"


def _by_own_path(run: Run) -> np.ndarray:
    """Return the bytes of messages over each resource, by the route that each has: without acknowledgements and detours."""
    return run.bytes if run.packets is None or run.flat is None else loads(run.flat, len(run.bytes))
