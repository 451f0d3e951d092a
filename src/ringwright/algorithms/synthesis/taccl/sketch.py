"""The logical topology: which places may send to which, over which links of the machine, and what looks the same.

A sketch of a file says it, or the machine's own structure: inside a host the direct links, else all pairs through its switch;
between hosts the ranks that are nearest to a NIC, each of which sends for those whose nearest it is. Turns of the ranks that map
every arc on one like it are the symmetry; one that a sketch claims and the machine has not is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError
from ringwright.model.topology import NIC

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.sketches import Sketch
    from ringwright.model.topology import Topology

ALPHA_PS, BYTE_PS = 1_000_000, 100.0  # of a port where no machine is given: 1 us, 10 GB/s
MOST_TURNED = 128  # places of which turns are looked for
Turn = tuple[int, ...]  # where each place goes


@dataclass(frozen=True)
class Hop:
    """A resource of the machine on an arc's way: a link, or a capacity that links share. In picoseconds, as engines count."""

    resource: int
    latency_ps: int
    byte_ps: float


@dataclass(frozen=True)
class Arc:
    """Place ``src`` may send to place ``dst``; ``remote`` between hosts, ``level`` the class of its slowest link."""

    src: int
    dst: int
    hops: tuple[Hop, ...]
    remote: bool = False
    level: str = ""

    @property
    def latency_ps(self) -> int:
        """Latency of all its links."""
        return sum(hop.latency_ps for hop in self.hops)

    @property
    def byte_ps(self) -> float:
        """Picoseconds a byte on its slowest link."""
        return max((hop.byte_ps for hop in self.hops), default=0.0)

    @property
    def like(self) -> tuple[object, ...]:
        """What two arcs that behave alike have in common."""
        return self.remote, self.latency_ps, round(self.byte_ps, 9), len(self.hops)


@dataclass(frozen=True)
class LogicalTopology:
    """A logical topology over the places of a group.

    ``senders``: by place those of its host that its data leave by (no entry: any). ``turns`` are the symmetry, the identity
    first. ``policy`` is that of its switches. ``ordered``: a sender's own data go first.
    """

    hosts: tuple[int, ...]
    arcs: tuple[Arc, ...]
    senders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    turns: tuple[Turn, ...] = ()
    policy: str = ""
    ordered: bool = False
    name: str = "automatic"

    @property
    def p(self) -> int:
        """Places."""
        return len(self.hosts)

    @cached_property
    def leaving(self) -> list[list[int]]:
        """Arcs out of each place."""
        return [[number for number, arc in enumerate(self.arcs) if arc.src == node] for node in range(self.p)]

    @cached_property
    def between(self) -> dict[tuple[int, int], int]:
        """The arc of each pair of places that has one."""
        return {(arc.src, arc.dst): number for number, arc in enumerate(self.arcs)}

    def reversed(self) -> LogicalTopology:
        """Return the wiring with its arcs turned round, each with the resources that it had; who relays is left open."""
        arcs = tuple(Arc(arc.dst, arc.src, arc.hops, arc.remote, arc.level) for arc in self.arcs)
        both = all(senders == (node,) for node, senders in self.senders.items())
        kept = (
            self.senders if both and all((arc.dst, arc.src) in self.between for arc in self.arcs if arc.remote) else {}
        )
        return LogicalTopology(self.hosts, arcs, kept, self.turns, self.policy, name=self.name)


def wiring(collective: Collective, topology: Topology | None, sketch: Sketch | None) -> LogicalTopology:
    """Return the logical topology of a group; UsageError where sketch and machine do not fit each other."""
    if topology is None:
        if sketch is not None:
            raise UsageError("a sketch is about the links of a machine, and none is given", remedy="--topology FILE")
        return _ports(collective.p)
    if sketch is not None:
        return _sketched(collective, topology, sketch)
    return _automatic(collective, topology)


def _ports(p: int) -> LogicalTopology:
    """Return all pairs of places, each with one port out and one port in, on no machine in particular."""
    arcs = tuple(
        Arc(a, b, (Hop(a, ALPHA_PS, BYTE_PS), Hop(p + b, 0, BYTE_PS))) for a in range(p) for b in range(p) if a != b
    )
    return LogicalTopology((0,) * p, arcs, turns=_turns(p, [(1, p)]))


# ------------------------------------------------------------------------------------------------- from a sketch
def _sketched(collective: Collective, topology: Topology, sketch: Sketch) -> LogicalTopology:
    p = collective.p
    gpus, rest = divmod(p, sketch.hosts)
    if rest or not gpus:
        raise UsageError(
            f"the sketch {sketch.name} is for {sketch.hosts} equal boxes, the group has {p} ranks",
            remedy=f"a group of {max(1, gpus) * sketch.hosts} ranks, or another sketch",
        )
    hosts = tuple(node // gpus for node in range(p))
    _require_gpus(sketch, gpus)
    pairs: dict[tuple[int, int], bool] = {}
    for host in range(sketch.hosts):
        base = host * gpus
        inside = (
            {(a, b) for row in sketch.switches for a in row for b in row if a != b}
            if sketch.strategy == "switch"
            else set(_inside(collective, topology, range(base, base + gpus)))
        )
        at = base if sketch.strategy == "switch" else 0
        pairs |= {(at + a, at + b): False for a, b in sorted(inside)}
    for host in range(sketch.hosts):
        for other in range(sketch.hosts):
            for here, row in sketch.receivers(gpus).items() if host != other else ():
                pairs |= {(host * gpus + here, other * gpus + there): True for there in row}
    senders = {
        host * gpus + gpu: (host * gpus + sender,)
        for sender, row in sketch.relays.items()
        for gpu in row
        for host in range(sketch.hosts)
    }
    arcs = _arcs(collective, topology, pairs)
    turns = _turns(p, [_fitting(each, p, sketch) for each in sketch.symmetry])
    _require_alike(arcs, turns, sketch)
    policy = sketch.policies[0] if sketch.policies else ""
    return LogicalTopology(hosts, arcs, senders, turns, policy, sketch.ordered, sketch.name)


def _require_gpus(sketch: Sketch, gpus: int) -> None:
    conn = {} if isinstance(sketch.connections, str) else sketch.connections
    rows: Iterable[Sequence[int]] = (
        *sketch.switches,
        *conn.values(),
        *sketch.relays.values(),
        [*conn],
        [*sketch.relays],
    )
    strange = [gpu for row in rows for gpu in row if gpu >= gpus]
    if strange:
        raise UsageError(
            f"the sketch {sketch.name} names GPU {strange[0]}, a box has {gpus}", remedy="a sketch of this kind of box"
        )


def _fitting(offset: tuple[int, int], p: int, sketch: Sketch) -> tuple[int, int]:
    if p % offset[1]:
        raise UsageError(
            f"the sketch {sketch.name} turns groups of {offset[1]} ranks, and there are {p}",
            where=f"symmetry_offsets {list(offset)}",
            remedy="a sketch of as many boxes",
        )
    return offset


def _require_alike(arcs: Sequence[Arc], turns: Sequence[Turn], sketch: Sketch) -> None:
    odd = _unlike(arcs, turns)
    if odd is not None:
        a, b, c, d = odd
        raise UsageError(
            f"the sketch {sketch.name} says that {a} to {b} behaves like {c} to {d}, which it does not on this machine",
            where=f"symmetry_offsets {[list(each) for each in sketch.symmetry]}",
            remedy="leave out that offset, or take a machine that has it",
        )


# ------------------------------------------------------------------------------------------ from the machine itself
def _automatic(collective: Collective, topology: Topology) -> LogicalTopology:
    p = collective.p
    of_rank = topology.hosts
    group = list(collective.group)
    numbered: dict[int, int] = {}
    hosts = tuple(numbered.setdefault(0 if of_rank is None else int(of_rank[rank]), len(numbered)) for rank in group)
    members: list[list[int]] = [[] for _ in numbered]
    for node, host in enumerate(hosts):
        members[host].append(node)
    pairs = {pair: False for nodes in members for pair in _inside(collective, topology, nodes)}
    senders: dict[int, tuple[int, ...]] = {}
    if len(members) > 1:
        doors = [_doors(collective, topology, nodes) for nodes in members]
        for host, mine in enumerate(doors):
            senders |= mine.senders
            for other, theirs in enumerate(doors):
                if other != host:
                    pairs |= dict.fromkeys(_joined(mine.out, theirs.into), True)
    arcs = _arcs(collective, topology, pairs)
    if not _is_joined(p, arcs):
        pairs = {(a, b): hosts[a] != hosts[b] for a in range(p) for b in range(p) if a != b}
        arcs, senders = _arcs(collective, topology, pairs), {}
    return LogicalTopology(hosts, arcs, senders, _turns_of(p, members, arcs, senders))


def _inside(collective: Collective, topology: Topology, nodes: Sequence[int]) -> list[tuple[int, int]]:
    """Return who talks to whom in a host: over direct links; where there are none all pairs, through its switch."""
    import numpy as np

    ranks = np.asarray(collective.group, np.int64)[np.asarray(nodes, np.int64)]
    here, there = (each.ravel() for each in np.meshgrid(np.arange(len(nodes)), np.arange(len(nodes)), indexing="ij"))
    apart = here != there
    here, there = here[apart], there[apart]
    linked = topology.link_ids(ranks[here], ranks[there]) >= 0
    if linked.any():
        here, there = here[linked], there[linked]
    return [(nodes[a], nodes[b]) for a, b in zip(here.tolist(), there.tolist(), strict=True)]


@dataclass(frozen=True)
class _Doors:
    """By which places a host sends to others and receives from them, one a NIC, and who leaves by which."""

    out: list[int]
    into: list[int]
    senders: dict[int, tuple[int, ...]]


def _doors(collective: Collective, topology: Topology, nodes: list[int]) -> _Doors:
    """Of the places nearest to a NIC the first sends and the last receives: what comes in spreads from another GPU."""
    import numpy as np

    nics = np.flatnonzero(topology.kinds == NIC)
    ranks = [int(collective.group[node]) for node in nodes]
    near: dict[int, list[int]] = {}
    nic_of: dict[int, int] = {}
    if len(nics):
        starts, links = topology.routes(np.repeat(ranks, len(nics)), np.tile(nics, len(ranks)))
        far = np.add.reduceat(topology.latency_s[links], starts[:-1]).reshape(len(ranks), len(nics))
        own = far.min(axis=0) == far.min()  # the NICs of this host
        for nic in np.flatnonzero(own).tolist():
            near[nic] = [nodes[at] for at in np.flatnonzero(np.isclose(far[:, nic], far[:, nic].min())).tolist()]
        nearest = np.flatnonzero(own)[far[:, own].argmin(axis=1)].tolist()
        nic_of = dict(zip(nodes, nearest, strict=True))
    if not near:
        return _Doors(nodes, nodes, {node: (node,) for node in nodes})
    shared: dict[int, list[int]] = {}
    for nic, members in near.items():
        shared.setdefault(members[0], []).append(nic)
    spread = {nic: near[nic][turn % len(near[nic])] for nics_ in shared.values() for turn, nic in enumerate(nics_)}
    last = {nic: near[nic][-1 - (near[nic].index(spread[nic]) % len(near[nic]))] for nic in near}
    return _Doors(list(spread.values()), list(last.values()), {node: (spread[nic],) for node, nic in nic_of.items()})


def _joined(out: list[int], into: list[int]) -> list[tuple[int, int]]:
    """Return who sends to whom of two hosts: NIC by NIC, the last ones in turn where one host has fewer."""
    return sorted({(out[at % len(out)], into[at % len(into)]) for at in range(max(len(out), len(into)))})


def _is_joined(p: int, arcs: Sequence[Arc]) -> bool:
    """Return whether every place reaches every other."""
    for side in (0, 1):
        beside: list[list[int]] = [[] for _ in range(p)]
        for arc in arcs:
            ends = (arc.src, arc.dst)
            beside[ends[side]].append(ends[1 - side])
        seen, front = {0}, [0]
        while front:
            fresh = [each for each in dict.fromkeys(beside[front.pop()]) if each not in seen]
            seen.update(fresh)
            front += fresh
        if len(seen) < p:
            return False
    return True


def _turns_of(
    p: int, members: list[list[int]], arcs: Sequence[Arc], senders: Mapping[int, tuple[int, ...]]
) -> tuple[Turn, ...]:
    """Return the turns that hold: whole hosts, then in groups of every size the shortest step."""
    sizes = {len(nodes) for nodes in members}
    if len(sizes) > 1 or [node for nodes in members for node in nodes] != list(range(p)):
        return _turns(p, [])
    kept: list[tuple[int, int]] = []
    for size in [size for size in range(p, 1, -1) if p % size == 0]:
        for step in [step for step in range(1, size) if size % step == 0]:
            if any(step % other == 0 and size == of for other, of in kept) or p > MOST_TURNED:
                continue
            one = (tuple(range(p)), _turn(p, step, size))
            moved = all(
                tuple(one[1][each] for each in row) == senders.get(one[1][node]) for node, row in senders.items()
            )
            if moved and _unlike(arcs, one) is None and _is_free(_turns(p, [*kept, (step, size)])):
                kept.append((step, size))
    return _turns(p, kept)


# ----------------------------------------------------------------------------------------------------------- shared
def _turns(p: int, offsets: Sequence[tuple[int, int]]) -> tuple[Turn, ...]:
    """Return all turns of the ranks that the offsets make, the identity first."""
    turns: dict[Turn, None] = {tuple(range(p)): None}
    for offset, size in offsets:
        one = _turn(p, offset, size)
        for turn in list(turns):
            now = turn
            for _ in range(size // offset):
                now = tuple(one[each] for each in now)
                turns[now] = None
    return tuple(turns)


def _turn(p: int, offset: int, size: int) -> Turn:
    return tuple(node - node % size + (node % size + offset) % size for node in range(p))


def _is_free(turns: Sequence[Turn]) -> bool:
    """Return whether no turn but the identity leaves a place where it is."""
    return not any(node == at for turn in turns[1:] for node, at in enumerate(turn))


def _unlike(arcs: Sequence[Arc], turns: Sequence[Turn]) -> tuple[int, int, int, int] | None:
    """Return an arc (from, to) and the pair that a turn makes of it, which is no arc or one of other costs."""
    like = {(arc.src, arc.dst): arc.like for arc in arcs}
    for turn in turns[1:]:
        for (a, b), mine in like.items():
            if like.get((turn[a], turn[b])) != mine:
                return a, b, turn[a], turn[b]
    return None


def _arcs(collective: Collective, topology: Topology, pairs: Mapping[tuple[int, int], bool]) -> tuple[Arc, ...]:
    """Return the arcs of these pairs (remote or not) with the resources of the machine's routes, dead links left out."""
    import numpy as np

    from ringwright.engines.machine import machine

    group = np.asarray(collective.group, np.int64)
    listed = list(pairs)
    ends = np.array(listed, np.int64).reshape(-1, 2)
    starts, links = topology.routes(group[ends[:, 0]], group[ends[:, 1]])
    made = machine(topology.at(0.0) if topology.faults else topology)  # as it is when the program begins
    bounds, owners = topology.memberships
    arcs = []
    for at, (src, dst) in enumerate(listed):
        route = links[starts[at] : starts[at + 1]].tolist()
        hops = [
            Hop(resource, int(made.latency[resource]), float(made.ps_per_byte[resource]))
            for link in route
            for resource in (link, *(topology.n_links + owners[bounds[link] : bounds[link + 1]]).tolist())
        ]
        if not all(math.isfinite(hop.byte_ps) for hop in hops):
            continue  # a dead link
        slowest = max(route, key=lambda link: (float(made.ps_per_byte[link]), -link))
        arcs.append(Arc(src, dst, tuple(hops), pairs[src, dst], topology.classes[int(topology.link_class[slowest])]))
    return tuple(arcs)
