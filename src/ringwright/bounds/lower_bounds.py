"""Lower bounds on the time of a collective on a machine, each with the part of the machine that proves it.

latency    every contribution has to reach whoever needs it: the longest of the shortest routes, in seconds of link latency, and
           the software cost of one message;
           and with k ports that are busy while a message is under way, ceil(log_(k+1) p) rounds of the least latency.
bandwidth  what must cross a set of nodes, over what its links carry. Exact over all sets where the machine is small (see
           ``maxflow``), else over the sets that its structure suggests, and then the bound may be too low.
sharing    all-reduce without aggregation in the network: over m parts of the machine 2 (m-1) n bytes must arrive in all
           (gossip takes 2m - 2 calls), (Patarasuk and Yuan, JPDC 2009, for equal ranks); all-to-all: bytes times hops over
           the capacity of all links.
adding     (p-1) n bytes are added at ranks that add up ``reduce_rate`` bytes/s each.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import Partition, at_best, distances, goodput, partitions
from ringwright.bounds.demands import MOST_EXACT, MOST_WORK, Demand, demand
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.ground.notebook import card, line
from ringwright.ground.units import format_size, format_us
from ringwright.model.collective import PREFIXES

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

ALPHAS = ("pipelined", "busy")
MOST_DISTANCES = 1 << 22  # sources times links that are searched at once
IN_NETWORK = "switches may add"
UNASKED = "not all cuts were searched, which takes longer here"
UNSEEN = "the search over all cuts does not see the capacities that links share here"
ROOT_FIRST = ("broadcast", "scatter")


@dataclass(frozen=True)
class Bound:
    """A time below which nothing is possible.

    ``kind``: distance, rounds, cut (exact), rank, host, ..., parts, volume, adding. ``certificate`` names the nodes of the
    set that proves it; ``crossing`` says whether ``demand_bytes`` have to get ``out of`` it or ``into`` it at ``capacity``
    bytes/s. ``ground`` says what the bound rests on, in words. ``exact``: all cuts were searched, so that no other set of nodes
    proves more; else ``looser`` says why not. ``sets`` are the node numbers of what proves it: of one set, of all parts, or
    of the two ends of a distance.
    """

    time_s: float
    size_bytes: int
    kind: str
    certificate: tuple[str, ...] = ()
    crossing: str = ""
    demand_bytes: float = 0.0
    capacity: float = 0.0
    ground: str = ""
    exact: bool = False
    looser: str = ""
    sets: tuple[tuple[int, ...], ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return line(
            f"Bound({format_us(self.time_s)} for {format_size(self.size_bytes)}, by {self.kind}: {self.ground})"
        )

    def _repr_html_(self) -> str:
        crossed = f"{self.demand_bytes:,.6g} B {self.crossing} it at {self.capacity / 1e9:,.6g} GB/s"
        facts = {
            "time": f"{self.time_s * 1e6:,.6g} us",
            "size": format_size(self.size_bytes),
            "kind": self.kind,
            "nodes": ", ".join(self.certificate),
            "must get": crossed if self.crossing else "",
            "ground": self.ground,
        }
        return card("Bound: no program is faster", facts)

    @property
    def algbw(self) -> float:
        """Bytes/s that no program can exceed: size over time; inf where the bound is 0 s."""
        return self.size_bytes / self.time_s if self.time_s else math.inf


def bound(
    collective: Collective,
    topology: Topology,
    *,
    in_network: bool = False,
    alpha: str = "pipelined",
    exact: bool | None = None,
) -> Bound:
    """Return the highest lower bound of ``bounds``."""
    return bounds(collective, topology, in_network=in_network, alpha=alpha, exact=exact)[0]


def lowest(collective: Collective, topology: Topology, *, alpha: str = "pipelined", exact: bool | None = None) -> Bound:
    """Return the bound of every program there can be: where switches can add and copy, they may; ``ground`` says so."""
    within = bool(topology.aggregators)
    least = bound(collective, topology, in_network=within, alpha=alpha, exact=exact)
    return of_all(least) if within else least


def of_all(within: Bound) -> Bound:
    """Return the bound of programs whose switches may add and copy as that of every program there can be."""
    return dataclasses.replace(within, ground=f"{within.ground}, {IN_NETWORK}")


def bounds(
    collective: Collective,
    topology: Topology,
    *,
    in_network: bool = False,
    alpha: str = "pipelined",
    exact: bool | None = None,
) -> list[Bound]:
    """Return lower bounds of each kind, the highest first.

    ``in_network``: programs may let aggregating nodes add and multicast. ``alpha``: ``busy`` links are taken during their
    latency, so that rounds count. ``exact`` forces (True) or forbids (False) the search over all cuts; None: where it takes
    a fraction of a second; each bound says whether it was done (``Bound.exact``). Faults count at their best: a link as fast as
    it ever is from the start on. Raises InfeasibleError where data cannot get where it must, or a search that is forced would
    take more than a few minutes.
    """
    if alpha not in ALPHAS:
        raise UsageError(f"'{alpha}' is no latency model", remedy=f"one of: {', '.join(ALPHAS)}")
    topology = at_best(topology)
    wanted = demand(collective, topology)
    size = collective.size_bytes
    if collective.p == 1:
        return [Bound(0.0, size, "distance", ground="one rank has all it needs", exact=True)]
    lower = [_distance(collective, topology, wanted)]
    if alpha == "busy" and not in_network:
        lower.append(_rounds(collective, topology))
    looser = _unsearched(wanted, topology, exact=exact) if size else ""
    if size:
        lower += _bandwidth(wanted, topology, in_network=in_network, searched=not looser or looser == UNSEEN)
        if collective.op == "all-to-all":
            lower += _volume(wanted, topology)
        if wanted.added_bytes and not in_network and math.isfinite(topology.reduce_rate):
            time_s = wanted.added_bytes / (collective.p * topology.reduce_rate)
            lower.append(Bound(time_s, size, "adding", ground=f"ranks add {topology.reduce_rate / 1e9:.4g} GB/s"))
    lost = next((each for each in lower if not math.isfinite(each.time_s)), None)
    if lost is not None:
        where = " to ".join(lost.certificate) if lost.kind == "distance" else ", ".join(lost.certificate[:6])
        raise InfeasibleError(
            f"{topology.name} is disconnected: no {collective.op} over these ranks",
            where=f"{lost.crossing} {where}".strip(),
            remedy="ringwright bound all-reduce --topology FILE",
        )
    lower = [dataclasses.replace(each, exact=not looser, looser=looser) for each in lower]
    return sorted(lower, key=lambda each: -each.time_s)


def _unsearched(wanted: Demand, topology: Topology, *, exact: bool | None) -> str:
    """Return why not all cuts are searched, or not as the machine is; empty where they are.

    Raises InfeasibleError where the search is asked for and too large.
    """
    if not wanted.is_searched:
        return f"there is no search over all cuts for {wanted.op}"
    work = wanted.work(topology)
    if exact and work > MOST_EXACT:
        raise InfeasibleError(
            f"the search over all cuts is too large: flows times links are {work:,}, more than {MOST_EXACT:,}",
            where=topology.name,
            remedy="leave out --exact, or ask about fewer --ranks",
        )
    if exact is False or (exact is None and work > MOST_WORK):
        return UNASKED
    return UNSEEN if topology.groups else ""


def forest_s(collective: Collective, topology: Topology) -> float:
    """Return the seconds that a best forest takes in the limit of large data: what a synthesiser can hope for.

    All-gather and reduce-scatter attain their exact cut (ForestColl, theorem 1); all-reduce does one after the other, which
    is no lower bound but a time that can be had. Raises UsageError for other operations.
    """
    if collective.op not in ("all-gather", "reduce-scatter", "all-reduce"):
        raise UsageError(f"no forests for {collective.op}", remedy="all-gather, reduce-scatter or all-reduce")
    ops = ("all-gather", "reduce-scatter") if collective.op == "all-reduce" else (collective.op,)
    total_s = 0.0
    for op in ops:
        part = dataclasses.replace(collective, op=op)
        cut = demand(part, topology).exact(topology) if collective.p > 1 and collective.size_bytes else None
        total_s += cut[0] if cut else 0.0
    return total_s


def _distance(collective: Collective, topology: Topology, wanted: Demand) -> Bound:
    """The longest of the shortest routes: from or to the root, to the next rank, or between any two ranks."""
    import numpy as np

    group = wanted.ranks
    to_root = collective.op in ("reduce", "gather")
    is_same = topology.is_symmetric and len(group) == topology.n_ranks
    sources = group[[collective.root]] if collective.op in (*ROOT_FIRST, "reduce", "gather") else group
    left_out = not is_same and len(sources) * topology.n_links > MOST_DISTANCES
    if is_same or left_out:
        sources = sources[: 1 if is_same else max(1, MOST_DISTANCES // topology.n_links)]
    searched = wanted.reversed_topology if to_root else topology
    far = distances(searched, sources, topology.latency_s)[:, group]
    if collective.op in PREFIXES:  # nothing goes to a rank before
        far = np.triu(far)
    if collective.op == "send-recv":  # everybody's data go to the next one only
        rows = np.arange(len(far))
        near = (rows, (rows + 1) % len(group))
        far, all_pairs = np.zeros_like(far), far
        far[near] = all_pairs[near]
    row, column = np.unravel_index(int(far.argmax()), far.shape)
    ends = (topology.label(int(sources[row])), topology.label(int(group[column])))
    ground = f"from {len(sources)} of {len(group)} ranks" if left_out else "the longest of the shortest ways"
    first = np.unique(topology.link_class[topology.src < topology.n_ranks])
    software_s = min((topology.message_s.get(topology.classes[number], 0.0) for number in first), default=0.0)
    names = ends[::-1] if to_root else ends
    nodes = (int(sources[row]),), (int(group[column]),)
    sets = nodes[::-1] if to_root else nodes
    return Bound(float(far.max()) + software_s, collective.size_bytes, "distance", names, ground=ground, sets=sets)


def _rounds(collective: Collective, topology: Topology) -> Bound:
    """Who knows something after a latency is at most each one who knew it, and one more for each of its ports."""
    import numpy as np

    n = topology.n_ranks
    of_ranks = (topology.src < n) | (topology.dst < n)
    ends = [np.bincount(end[end < n], minlength=1).max() for end in (topology.src, topology.dst)]
    ports = max(1, *map(int, ends))
    rounds = 1 if collective.op == "send-recv" else next(k for k in range(64) if (ports + 1) ** k >= collective.p)
    least = float(topology.latency_s[of_ranks].min(initial=math.inf))
    time_s = rounds * least if math.isfinite(least) else 0.0
    return Bound(time_s, collective.size_bytes, "rounds", ground=f"{rounds} rounds with {ports} ports")


def _bandwidth(wanted: Demand, topology: Topology, *, in_network: bool, searched: bool) -> list[Bound]:
    """Return the best bound of each kind of part, after that of all cuts, where they are to be searched."""
    best: dict[str, tuple[Bound, Partition, int]] = {}
    for partition in partitions(topology):
        for each, part in _tightest(wanted, partition, in_network=in_network):
            if each.kind not in best or best[each.kind][0].time_s < each.time_s:
                best[each.kind] = each, partition, part
    named = [
        dataclasses.replace(each, certificate=partition.members(part), sets=(partition.nodes(part),))
        if part >= 0
        else dataclasses.replace(each, sets=tuple(map(partition.nodes, range(partition.parts))))
        for each, partition, part in best.values()
    ]
    lower = sorted(named, key=lambda each: -each.time_s)
    if searched:
        cut = wanted.exact(topology)
        if cut is not None:
            return [_exact(wanted.size_bytes, topology, *cut), *lower]
    return lower


def _exact(
    size: int, topology: Topology, time_s: float, nodes: frozenset[int], crossing: str, needed: float, capacity: float
) -> Bound:
    """The tightest cut, told by its smaller side."""
    if 2 * len(nodes) > topology.n_nodes:
        nodes = frozenset(range(topology.n_nodes)) - nodes
        crossing = "into" if crossing == "out of" else "out of"
    names = tuple(topology.label(node) for node in sorted(nodes))
    ground = "the tightest of all cuts" + (", shared capacities left out" if topology.groups else "")
    sets = (tuple(sorted(nodes)),)
    return Bound(time_s, size, "cut", names, crossing, needed, capacity, ground, sets=sets)


def _tightest(wanted: Demand, partition: Partition, *, in_network: bool) -> Iterator[tuple[Bound, int]]:
    """Yield the best bounds of one partition, without names, and the part whose nodes are the certificate, -1 for none."""
    import numpy as np

    out, into = wanted.across(partition.labels[wanted.ranks], partition.parts)
    for crossing, needed, capacity in (("out of", out, partition.leaving), ("into", into, partition.entering)):
        with np.errstate(divide="ignore", invalid="ignore"):
            time_s = np.where(needed > 0, needed / capacity, 0.0)
        if len(time_s) and time_s.max() > 0:
            part = int(time_s.argmax())
            tight = Bound(
                float(time_s[part]),
                wanted.size_bytes,
                partition.kind,
                (),
                crossing,
                float(needed[part]),
                float(capacity[part]),
                "the tightest of the cuts tried",
            )
            yield tight, part
    if wanted.op == "all-reduce" and not (in_network and _adds_outside(partition)):
        for each in _parts(wanted, partition):
            yield each, -1


def _parts(wanted: Demand, partition: Partition) -> Iterator[Bound]:
    import numpy as np

    parts = np.unique(partition.labels[wanted.ranks])
    if parts[0] < 0 or len(parts) < 2:
        return
    needed, capacity = 2.0 * (len(parts) - 1) * wanted.size_bytes, float(partition.entering[parts].sum())
    ground = f"2 (m-1) n bytes into {len(parts)} parts, each a {partition.kind}"
    time_s = needed / capacity if capacity else math.inf
    yield Bound(time_s, wanted.size_bytes, "parts", (), "into", needed, capacity, ground)


def _adds_outside(partition: Partition) -> bool:
    return any(partition.labels[node] < 0 for node in partition.topology.aggregators)


def _volume(wanted: Demand, topology: Topology) -> list[Bound]:
    """Bytes times hops over the capacity of all links, and of the links of each class."""
    import numpy as np

    if wanted.pairs is None and len(wanted.ranks) * topology.n_links > MOST_DISTANCES and not topology.is_symmetric:
        return []
    is_same = topology.is_symmetric and wanted.pairs is None and len(wanted.ranks) == topology.n_ranks
    sources = wanted.ranks[:1] if is_same else wanted.ranks
    if len(sources) * topology.n_links > MOST_DISTANCES:
        return []
    lower = []
    classes = [*enumerate(topology.classes)] if len(topology.classes) > 1 else []
    for number, name in ((-1, "any class"), *classes):
        lengths = (topology.link_class == number).astype(float) if number >= 0 else np.ones(topology.n_links)
        far = distances(topology, sources, lengths)[:, wanted.ranks]
        between = wanted.blocks.min() if is_same else wanted.between(len(sources))  # to each rank from some other one
        needed = float((far * between).sum()) * (len(wanted.ranks) if is_same else 1)
        capacity = float((goodput(topology) * lengths).sum())
        if needed:
            ground = f"bytes times links of {name}, over what all of them carry"
            lower.append(Bound(needed / capacity, wanted.size_bytes, "volume", (), "", needed, capacity, ground))
    return sorted(lower, key=lambda each: -each.time_s)[:1]
