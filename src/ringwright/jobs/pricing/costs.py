"""What operations take on a fabric: each (operation, group, size) is a Program, timed by the engines, once.

Sibling groups do the same at the same time. Those that share a link, directly or by others between them, are timed together,
their messages on one machine. What an operation and its siblings load of their links meanwhile tells the engine of jobs how
much two operations of different roles disturb each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.searching import in_time
from ringwright.calls import job_ends
from ringwright.engines.background_programs import LOWER_BOUND
from ringwright.engines.choose import simulate
from ringwright.engines.link_crossings import crossed
from ringwright.engines.packets.carriage import acts_on_packets, without_losses
from ringwright.engines.packets.operation_losses import Bound, FollowedPackets
from ringwright.ground.errors import InfeasibleError, JobEndsError, NeverArrivesError, UsageError
from ringwright.jobs.explained.outages import PassingFault, staying
from ringwright.jobs.faults import marked
from ringwright.jobs.phases import COPY, RING, parts_of, phases_of
from ringwright.jobs.pricing.concurrent_operations import timed_at_once
from ringwright.jobs.pricing.copies import copied_s
from ringwright.jobs.pricing.cost_cache import MOST_ASKED, MOST_TIMED, KnownOperations, Timed, TimedRanks, remembered
from ringwright.jobs.pricing.host_links import HostLinks
from ringwright.jobs.pricing.places import places
from ringwright.jobs.pricing.siblings import Siblings
from ringwright.jobs.pricing.verb_costs import SaidOperations
from ringwright.jobs.pricing.wire import sent_by_ranks
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.software import NO_SOFTWARE
from ringwright.model.stages import Stage, hops_of
from ringwright.model.workload import SHIFTS, Mesh

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.model.program import Program
    from ringwright.model.topology import Topology
    from ringwright.model.workload import Workload

PROBE = 16 << 20  # bytes of the operations that show who shares a link with whom
MOST_EXACT = 256  # ranks, siblings among them, up to which every size is timed by itself
LEAST_BYTES = 1 << 12
MOST_USED = 1 << 8  # groups of which is remembered what they use: a byte a link
LIBRARY = "nccl-2-4"
# What no system changes.
OF_MACHINE = ("healthy", "places", "watched", "faulty", "host_links", "siblings", "said", "said_healthy")


def on_fabric(topology: Topology, workload: Workload, algorithm: str = "") -> FabricCosts:
    """Return what the operations of a workload take on a machine by one algorithm ("": NCCL's own choices)."""
    return FabricCosts(topology, workload.mesh, stages_of(workload), {"": algorithm} if algorithm else {})


def stages_of(workload: Workload) -> frozenset[str]:
    """Return the axes along which ranks send each other messages: those of a pipeline, whose stages are apart in time."""
    return frozenset(axis for each in workload.payloads if each.op == RING for axis in each.axes)


@dataclass(frozen=True, eq=False)
class FabricCosts:
    """Costs on ``topology``, where rank i of the job is rank i of the fabric. What was asked is remembered, the latest of it.

    ``algorithms`` (operation -> spelling, "" for all others) says which system does what; ``stages_along``: axes
    along which groups do not do the same at the same time. ``units`` is the share of compute units
    that an operation holds. ``others``: what other jobs on the fabric repeat meanwhile;
    ``bound``: whether what packets add is counted as it is most likely, or as its least or most.
    Of the machine's faults those that stay are met by every operation; ``passing`` are the outages, which no
    operation has a time for.
    ``known`` is what was found out before on the same machine, and is added to; a copy by ``replace`` begins without.
    """

    topology: Topology
    mesh: Mesh
    stages_along: frozenset[str] = frozenset()
    algorithms: Mapping[str, str] = field(default_factory=dict)
    units: float = 0.12
    width_bytes: int = 4
    others: tuple[Program, ...] = ()
    bound: Bound = "seconds"
    passing: tuple[PassingFault, ...] = ()
    known: InitVar[KnownOperations | None] = None
    met: KnownOperations = field(init=False, repr=False)
    stays: tuple[str, ...] = field(init=False, default=())  # sentences about faults that begin late or pass
    dead_since_s: float = field(init=False, default=0.0)  # when the first link is down that stays so
    left: dict[str, str] = field(init=False, default_factory=dict)  # what was left to the library: operation -> why
    packets: FollowedPackets = field(init=False, default_factory=FollowedPackets, repr=False)

    def __post_init__(self, known: KnownOperations | None) -> None:
        object.__setattr__(self, "met", known or KnownOperations())
        object.__setattr__(self, "algorithms", dict(self.algorithms))
        stays = staying(self.topology)
        object.__setattr__(self, "topology", stays.topology)
        object.__setattr__(self, "passing", (*self.passing, *stays.passing))
        object.__setattr__(self, "stays", stays.told)
        object.__setattr__(self, "dead_since_s", stays.dead_since_s)
        if self.topology.n_ranks < self.mesh.size:
            raise UsageError(
                f"{self.mesh.size} ranks do not fit on {self.topology.name}, which has {self.topology.n_ranks}",
                remedy="a larger fabric, or fewer GPUs",
            )

    @cached_property
    def healthy(self) -> Topology:
        """The machine without its faults."""
        return replace(self.topology, faults=())

    def differs_from(self, healthy: FabricCosts) -> bool:
        """Return whether the machine without its rows of faults is another than the healthy one.

        Faults of all links, other jobs and unlucky hashes are no rows: they change the machine itself.
        """
        mine, other = self.topology, healthy.topology
        alike = all(np.array_equal(getattr(mine, name), getattr(other, name)) for name in ("rate", "latency_s", "loss"))
        return not alike or mine.provenance != other.provenance or len(self.others) != len(healthy.others)

    @cached_property
    def sound(self) -> FabricCosts:
        """The costs on the machine without its faults; what healthy groups take is known already."""
        return replace(self, topology=self.healthy, passing=(), known=KnownOperations(self.met.timed))

    def done_by(self, algorithms: Mapping[str, str]) -> FabricCosts:
        """Return the costs of operations that these do; what is known of each system on the machine is known to both."""
        other = replace(self, algorithms=algorithms, known=self.met)
        object.__setattr__(other, "stays", self.stays)
        object.__setattr__(other, "dead_since_s", self.dead_since_s)
        other.__dict__.update({name: each for name, each in self.__dict__.items() if name in OF_MACHINE})
        return other

    def by(self, op: str) -> str:
        """Return the spelling of the system that does an operation."""
        if op in (COPY, RING):
            return self.algorithms.get(RING) or LIBRARY
        return self.algorithms.get(op) or self.algorithms.get("", LIBRARY)

    @cached_property
    def calm(self) -> FabricCosts:
        """The costs on the machine whose links lose nothing and have the usual buffers; these, where that is so."""
        if not acts_on_packets(self.topology):
            return self
        return replace(self, topology=without_losses(self.topology))

    def at(self, bound: Bound) -> FabricCosts:
        """Return the costs with the least or the most of what packets add, which are not followed again."""
        other = replace(self, bound=bound)
        object.__setattr__(other, "packets", self.packets)
        return other

    @cached_property
    def places(self) -> np.ndarray | None:
        """A number for each rank, int64 of shape (ranks,), equal where they lie alike on the healthy machine; None: all do."""
        return places(self.healthy, self.mesh)

    @cached_property
    def watched(self) -> frozenset[int]:
        """The links that have outages."""
        return frozenset(link for each in self.passing for link in each.links)

    @property
    def marked(self) -> tuple[int, ...]:
        """The ranks of the job that are simulated one by one: those of hosts whose links have a fault, or outages."""
        return marked(self.topology, self.mesh.size, self.watched)

    @cached_property
    def faulty(self) -> frozenset[int]:
        """The ranks of hosts whose links have a fault, or outages."""
        if not self.topology.faults and not self.watched:
            return frozenset()
        return frozenset(marked(self.topology, self.topology.n_ranks, self.watched))

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases of an operation among ``ranks``: one, but for a server's two."""
        if len(ranks) < 2:
            return (Stage(0.0, loads=()),)
        by = tuple(self.by(each) for each in parts_of(op))
        return remembered(
            self.met.stages,
            (by, op, size_bytes, ranks),
            MOST_ASKED,
            lambda: tuple(self._stage(*each) for each in phases_of(op, size_bytes, ranks)),
        )

    def link_rates(self, op: str, size_bytes: int, ranks: tuple[int, ...]) -> np.ndarray:
        """Return bytes/s of each link as an operation finds it, of which its loads are shares; float64 of shape (links,)."""
        kind, size, alike, _ = phases_of(op, size_bytes, ranks)[0]
        group = self._canonical(alike[0])
        said = self._said_of(kind, group)
        machine = self._machine(group) if said is None else said.priced_on(self.program(kind, size, group))
        return machine.rate

    def programs(self, op: str, size_bytes: int, ranks: tuple[int, ...]) -> list[list[Program]]:
        """Return, for each phase of an operation, the programs that are at work at once: its siblings', its own last."""
        return [
            [
                self.program(kind, size, group)
                for group in self._together(kind, tuple(self._canonical(each) for each in alike))
            ]
            for kind, size, alike, _ in phases_of(op, size_bytes, ranks)
            if len(ranks) > 1
        ]

    def least_s(self, op: str, size_bytes: int, ranks: tuple[int, ...]) -> float:
        """Return what an operation takes where nobody else is at work: with its siblings it takes no less."""
        if len(ranks) < 2:
            return 0.0
        taken = 0.0
        for kind, size, alike, _ in phases_of(op, size_bytes, ranks):
            group = self._canonical(alike[0])
            low, _ = self._sizes(size, (group,))
            program, said = self.program(kind, low, group), self._said_of(kind, group)
            run = simulate(program, said.priced_on(program) if said else self._machine(group))
            taken += run.time_s * (said.longer(self._done_by(kind, group), program, run) if said else 1.0)
        return taken

    def own_programs(self, op: str, size_bytes: int, ranks: tuple[int, ...]) -> list[Program]:
        """Return the program of each phase of an operation among these very ranks, whoever is at work beside them."""
        return [
            self.program(kind, size, TimedRanks(alike[0])) for kind, size, alike, _ in phases_of(op, size_bytes, ranks)
        ]

    def told(self) -> list[str]:
        """Return sentences about faults, and about operations that the chosen algorithm cannot do, as far as they were met."""
        return [*self.stays, *self.left.values(), *self.packets.told()]

    def refusal(self, op: str, ranks: tuple[int, ...]) -> UsageError | None:
        """Return why the chosen algorithm left an operation among ranks to the library; None where it did not."""
        parts = phases_of(op, 1, ranks)
        asked = (self.met.refused.get((self.by(kind), kind, self._canonical(each[0]))) for kind, _, each, _ in parts)
        return next(filter(None, asked), None)

    def _stage(self, op: str, size_bytes: int, alike: tuple[tuple[int, ...], ...], phase: str) -> Stage:
        """Return the phase of an operation that several groups do at the same time, each with its siblings."""
        groups = self._together(op, tuple(self._canonical(ranks) for ranks in alike))
        low, high = self._sizes(size_bytes, groups)
        before, after = self.run(op, low, groups), self.run(op, high, groups)
        part = (size_bytes - low) / (high - low) if high > low else 0.0
        seconds = before.seconds + (after.seconds - before.seconds) * part
        timed = after if part > 0.5 else before
        is_copy = op == COPY and self._in_one_host(alike[0])
        if is_copy:
            timed, seconds = timed.lasting(copied_s(timed.seconds)), copied_s(seconds)
        return Stage(seconds, 0.0, phase, (), 0.0 if is_copy else self.units, self._loads(op, timed, alike[0]))

    def _in_one_host(self, ranks: tuple[int, ...]) -> bool:
        """Return whether copy engines reach all of these ranks' memory; between hosts the library sends."""
        hosts = self.topology.hosts
        inside = hosts is not None and len(np.unique(hosts[list(ranks)])) == 1
        if not inside:
            self.left.setdefault(
                COPY, f"copies among {len(ranks)} ranks by {LIBRARY}: no copy engine reaches another host"
            )
        return inside

    def _loads(self, op: str, timed: Timed, ranks: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
        """Return the links and capacities of what was timed where the group itself has them, those at its hosts.

        Of links with outages only those that it uses itself: its siblings go on.
        """
        hosts, links = self.topology.hosts, timed.links
        kept = np.ones(len(links), bool)
        if hosts is not None and len(links):
            by = int(hosts[min(ranks)]) - int(hosts[min(self._canonical(ranks).ranks)])
            links = self.host_links.moved(links, by)
            kept = (links >= 0) & self.host_links.touch(links, np.unique(hosts[list(ranks)]))
        if self.watched and len(links):
            own = self._known_used(op, self._canonical(ranks))
            kept = np.where(np.isin(links, list(self.watched)), own[links], kept)
        return tuple(zip(links[kept].tolist(), timed.shares[kept].tolist(), strict=True))

    @cached_property
    def host_links(self) -> HostLinks:
        """The links and capacities of each host, of a machine that has any."""
        return HostLinks(self.topology)

    def _sizes(self, size_bytes: int, groups: tuple[TimedRanks, ...]) -> tuple[int, int]:
        """Return the sizes that are timed for one: itself, or, among many ranks, the powers of two around it."""
        if sum(len(group.ranks) for group in groups) <= MOST_EXACT or size_bytes <= LEAST_BYTES:
            return size_bytes, size_bytes
        low = 1 << (size_bytes.bit_length() - 1)
        return low, low if low == size_bytes else 2 * low

    def _canonical(self, ranks: tuple[int, ...]) -> TimedRanks:
        """Return a group that is timed for all that lie alike: the same places in the hosts, as many hosts apart."""
        hosts, healthy = self.topology.hosts, self.faulty.isdisjoint(ranks)
        if not healthy or hosts is None or not self.topology.is_symmetric or self.others:
            return TimedRanks(ranks, healthy)
        per_host = int(np.bincount(hosts).max())
        shift = min(ranks) // per_host * per_host
        return TimedRanks(tuple(rank - shift for rank in ranks))

    def run(self, op: str, size_bytes: int, groups: tuple[TimedRanks, ...]) -> Timed:
        """Return what an operation takes while all of ``groups`` do it, from memory where it was asked before.

        Healthy groups are alike, so it ends when the last of them has done it. With a fault it takes what the last of ``groups``
        takes, but no less than without.
        """
        if groups[-1].healthy:  # one answer for all of them, whoever asks
            groups = tuple(sorted(groups, key=lambda each: each.ranks))
        return remembered(
            self.met.timed,
            (self.by(op), op, groups, size_bytes),
            MOST_TIMED,
            lambda: self._made(op, size_bytes, groups),
        )

    def _made(self, op: str, size_bytes: int, groups: tuple[TimedRanks, ...]) -> Timed:
        machine = self._machine(groups[-1])
        try:
            timed = self._at_once(op, size_bytes, groups, machine)
        except (NeverArrivesError, JobEndsError) as error:
            ends = job_ends.end_of(error, machine)
            if isinstance(ends, JobEndsError):
                ends.ranks = groups[-1].ranks
            raise ends from error
        if groups[-1].healthy:
            return timed
        healthy = self.run(op, size_bytes, tuple(replace(group, healthy=True) for group in groups))
        return max(timed, healthy, key=lambda each: each.seconds)

    def _at_once(self, op: str, size_bytes: int, groups: tuple[TimedRanks, ...], machine: Topology) -> Timed:
        """Return what the last of some groups takes while all of them are at work on a machine, with what packets lose."""
        programs = [self.program(op, size_bytes, group) for group in groups]
        if (said := self._said_of(op, groups[-1])) is not None:
            machine = said.priced_on(programs[-1])
        lost_s = self._lost_s(op, size_bytes, groups, machine)
        self._keep_sent(op, size_bytes, groups[-1], programs[-1])
        timed, run, only_least = timed_at_once(
            programs,
            machine if lost_s is None else without_losses(machine),
            self.others,
            alike=groups[-1].healthy,
            watched=self.watched,
        )
        if only_least:
            self.left.setdefault(LOWER_BOUND, f"some operations beside other jobs: {LOWER_BOUND}")
        longer = said.longer(self._done_by(op, groups[-1]), programs[-1], run) if said else 1.0
        return timed.lasting(timed.seconds * longer + (lost_s or 0.0))

    def _done_by(self, op: str, group: TimedRanks) -> str:
        """Return the spelling of the system that does an operation among ranks: the library where the chosen one does not."""
        return LIBRARY if (self.by(op), op, group) in self.met.refused else self.by(op)

    def _said_of(self, op: str, group: TimedRanks) -> SaidOperations | None:
        """Return what the collective verb says of operations; None of what copy engines do, of which it says nothing."""
        if op == COPY and self._in_one_host(group.ranks):
            return None
        return self.said_healthy if group.healthy else self.said

    @cached_property
    def said(self) -> SaidOperations:
        """What the collective verb says of operations on the machine."""
        return SaidOperations(self.topology, self.healthy)

    @cached_property
    def said_healthy(self) -> SaidOperations:
        """What the collective verb says of operations on the machine without its faults."""
        return SaidOperations(self.healthy, self.healthy)

    def _lost_s(self, op: str, size_bytes: int, groups: tuple[TimedRanks, ...], machine: Topology) -> float | None:
        """Return what an operation's packets add, in seconds; None where nothing acts on them or they cannot be followed."""
        if not acts_on_packets(machine):
            return None
        more = self.packets.at(
            op, groups, size_bytes, lambda size: [self.program(op, size, group) for group in groups], machine
        )
        return None if more is None else float(getattr(more, self.bound))

    def program(self, op: str, size_bytes: int, group: TimedRanks) -> Program:
        """Return how the system that is asked for does an operation, the library where that system does not do it.

        Raises OutOfTimeError where the seconds of its block (``limited``) are over: a system that searches is cut short then.
        """
        ranks, machine = group.ranks, self._machine(group)
        if op == COPY:
            sent = self.program(RING, size_bytes, group)
            return replace(sent, software=NO_SOFTWARE) if self._in_one_host(ranks) else sent
        spelling = self.by(op)
        _, make, knobs = algorithm(spelling)
        in_time()
        even = -(-size_bytes // (len(ranks) * self.width_bytes)) * len(ranks) * self.width_bytes
        try:
            program: Program = make(Collective(op, ranks, even, "float32"), machine, **knobs)
        except UsageError as error:
            if spelling == LIBRARY:
                raise
            self.met.refused.setdefault((spelling, op, group), error.with_traceback(None))
            _, make, _ = algorithm(LIBRARY)  # a system that does one collective leaves the others to the library
            self.left.setdefault(op, f"{op} among {len(ranks)} ranks by {LIBRARY}: {error.what}")
            program = make(Collective(op, ranks, even, "float32"), machine)
        except InfeasibleError:
            in_time()
            raise
        in_time()
        return program.made()

    def _keep_sent(self, op: str, size_bytes: int, group: TimedRanks, program: Program) -> None:
        """Keep what a program sends, where it declares it: who asks for it later need not have the program made again."""
        if not program.aggregators:
            self.met.sent[self.by(op), op, group, size_bytes] = sent_by_ranks(program)

    def sent_bytes(self, op: str, size_bytes: int, ranks: tuple[int, ...]) -> float:
        """Return the bytes that all ranks of a group together put on wires in one operation, a protocol's flags among them."""
        if len(ranks) < 2 or not size_bytes:
            return 0.0
        if op == RING or hops_of(op)[0] in SHIFTS:
            return float(size_bytes) * (1 if op == RING else len(ranks))
        if op == "push-pull":
            return sum(self.sent_bytes(each, size_bytes, ranks) for each in ("reduce-scatter", "all-gather"))
        if op == "factors":
            return self.sent_bytes("all-gather", size_bytes * len(ranks), ranks)
        group = self._canonical(ranks)
        key = (self.by(op), op, group, size_bytes)
        if key not in self.met.sent:
            self.met.sent[key] = sent_by_ranks(self.program(op, size_bytes, group))
        return self.met.sent[key]

    def _machine(self, group: TimedRanks) -> Topology:
        return self.healthy if group.healthy else self.topology

    # --------------------------------------------------------------------------------------------------------- siblings
    def _together(self, op: str, own: tuple[TimedRanks, ...]) -> tuple[TimedRanks, ...]:
        """Return what is timed with ``own``: siblings that share links with it or with one that does; its first comes last."""
        key = (self.by(op), op, own)
        if key not in self.met.beside:
            group = own[0]
            alike = dict.fromkeys(ranks for each in own for ranks in (each.ranks, *self.siblings.of(each.ranks)))
            siblings = [TimedRanks(ranks, group.healthy) for ranks in alike if ranks != group.ranks]
            used = {each: self._known_used(op, each) for each in (group, *siblings)} if siblings else {}
            near, reached = [], used.get(group, np.zeros(0, bool))
            while more := [each for each in siblings if each not in near and bool((used[each] & reached).any())]:
                near += more
                reached = np.logical_or.reduce([reached, *(used[each] for each in more)])
            self.met.beside[key] = (*(each for each in siblings if each in near), group)
        return self.met.beside[key]

    @cached_property
    def siblings(self) -> Siblings:
        """Which groups do the same at the same time."""
        return Siblings(self.topology, self.mesh, self.stages_along)

    @cached_property
    def _known_used(self) -> Callable[[str, TimedRanks], np.ndarray]:
        return lru_cache(MOST_USED)(self._used)

    def _used(self, op: str, group: TimedRanks) -> np.ndarray:
        """Return which links and shared capacities an operation of some size uses. bool of shape (links + capacities,)."""
        return crossed(self.program(op, PROBE, group), self._machine(group))
