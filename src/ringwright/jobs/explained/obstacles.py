"""The six obstacles to adding in the network, answered for one job on one machine, each with the field that decides it.

Types and operations, size, fan-in and topology, memory and leases, sharing and security, order. The first four are decided by
what the job sends and what its switches can do. They are asked of the *core*, switches between hosts, and where hosts have
them of the *edge*, switches inside. (After Hoefler et al. 2026, arXiv 2601.19132, which asks for both what stands in the way.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from ringwright.algorithms.switch_trees import network_switches
from ringwright.calls.in_switches import in_switches
from ringwright.ground.errors import FanInError, OperationError, UsageError
from ringwright.ground.units import format_size
from ringwright.model.codecs.formats import codecs
from ringwright.model.streams import granted, payload_bytes

if TYPE_CHECKING:
    from ringwright.jobs.explained.exposed_operations import OperationKey, OperationsAlike
    from ringwright.jobs.pricing.costs import FabricCosts
    from ringwright.model.program import Program
    from ringwright.model.topology import Capability, Topology

ADDED = ("all-reduce", "reduce-scatter", "reduce")
HALVES = ("reduce-scatter", "all-gather")  # either sends or receives all data at some rank, whoever adds
MOST_SIBLINGS = 64
INTEGERS = ("int8", "uint8", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle at the ``core`` or the ``edge``: clear, with care or in the way, what that is, and the fields that say so."""

    obstacle: str
    tier: Literal["core", "edge"]
    verdict: Literal["clear", "with care", "in the way"]
    answer: str
    decided_by: list[str]


@dataclass(frozen=True)
class _Asked:
    """One tier of a machine: its switches that add, what the first can do, and the operations of the job."""

    tier: Literal["core", "edge"]
    costs: FabricCosts
    nodes: tuple[int, ...]
    operations: Mapping[OperationKey, OperationsAlike]
    hosts_s: Mapping[OperationKey, float | None]
    refused: Sequence[UsageError]

    def declined(self, kind: type[UsageError] = UsageError) -> list[str]:
        """Return why systems declined operations, in words, each once; of errors of one ``kind``."""
        return list(dict.fromkeys(each.what for each in self.refused if isinstance(each, kind)))

    @property
    def can(self) -> Capability:
        """What its switches can do: of several kinds the one of the first."""
        return self.costs.topology.aggregators[self.nodes[0]]

    @property
    def at(self) -> str:
        """The switch as a field of the fabric."""
        return f"topology.aggregators[{self.costs.topology.label(self.nodes[0])}]"

    @property
    def reduced(self) -> dict[OperationKey, OperationsAlike]:
        """The operations in which something is added."""
        return {key: mine for key, mine in self.operations.items() if key.op in ADDED}

    def at_once(self) -> list[Program]:
        """Return the programs that add at this tier while the largest operation that it adds is done: its own is the first.

        Groups that do the same are at work at once and share a switch, though they may share no link.
        """
        made = self.largest
        if made is None:
            return []
        key, mine, own = made
        beside = [self._programs(key, mine, each) for each in self._beside(mine)]
        return [own, *(each for each in beside if each is not None)]

    def _beside(self, mine: OperationsAlike) -> list[tuple[int, ...]]:
        """Return the other groups along an operation's axes, those of the same pipeline stage."""
        mesh, stages = self.costs.mesh, self.costs.stages_along
        own, known = mesh.place(mine.group[0]), set(mine.group)
        groups: list[tuple[int, ...]] = []
        for rank in range(mesh.size):
            if rank in known or any(mesh.place(rank)[axis] != own[axis] for axis in stages):
                continue
            group = tuple(mesh.group(mine.first.axes, rank))
            known.update(group)
            groups += [group] if len(group) == len(mine.group) else []
        return groups[:MOST_SIBLINGS]

    @cached_property
    def largest(self) -> tuple[OperationKey, OperationsAlike, Program] | None:
        """The largest operation whose contributions this tier adds, with its program; None where it adds none."""
        for key in sorted(self.reduced, key=lambda each: (-each.size_bytes, each)):
            mine = self.operations[key]
            if (made := self._programs(key, mine, mine.group)) is not None:
                return key, mine, made
        return None

    def _programs(self, key: OperationKey, mine: OperationsAlike, ranks: tuple[int, ...]) -> Program | None:
        """Return the program of an operation among ranks that adds at this tier; None where none of its phases does."""
        phases = self.costs.own_programs(mine.first.asked, key.size_bytes, ranks)
        return next((each for each in phases if not set(each.aggregators).isdisjoint(self.nodes)), None)

    def program(self) -> Program | None:
        """Return the program of the largest operation whose contributions this tier adds; None where it adds none."""
        return None if self.largest is None else self.largest[2]


def obstacles(
    costs: FabricCosts,
    operations: Mapping[OperationKey, OperationsAlike],
    hosts_s: Mapping[OperationKey, float | None],
    refused: Sequence[UsageError],
) -> list[Obstacle]:
    """Return the answers, tier by tier.

    ``operations``: of a step by the system whose costs these are; ``hosts_s``: what the quickest of hosts alone takes for each;
    ``refused``: the errors by which systems declined operations.
    """
    topology = costs.topology
    core = network_switches(topology)
    tiers: list[tuple[Literal["core", "edge"], frozenset[int]]] = [
        ("core", core),
        ("edge", frozenset(topology.aggregators) - core),
    ]
    told: list[Obstacle] = []
    for tier, nodes in tiers:
        if nodes:
            here = _between(topology, operations) if tier == "core" else operations
            asked = _Asked(tier, costs, tuple(sorted(nodes)), here, hosts_s, refused if tier == "core" else ())
            told += [
                _types(asked),
                *_size(asked),
                _topology(asked),
                _memory(asked),
                _sharing(asked),
                _order(asked),
            ]
    return told


def _between(
    topology: Topology, operations: Mapping[OperationKey, OperationsAlike]
) -> Mapping[OperationKey, OperationsAlike]:
    """Return the operations between hosts, all of them where none is."""
    return {key: mine for key, mine in operations.items() if len(_hosts(topology, mine.group)) > 1} or operations


def _answer(
    asked: _Asked,
    obstacle: str,
    verdict: Literal["clear", "with care", "in the way"],
    answer: str,
    fields: Iterable[str],
) -> Obstacle:
    return Obstacle(
        obstacle=obstacle, tier=asked.tier, verdict=verdict, answer=answer, decided_by=list(dict.fromkeys(fields))
    )


def _types(asked: _Asked) -> Obstacle:
    """Whether what is sent is something that can be added, in a type that is."""
    can, reduced = asked.can, asked.reduced
    fields = [f"{_payload(mine)}.dtype = {mine.dtype}" for mine in reduced.values()]
    fields += [f"{_payload(mine)}.op = {key.op}" for key, mine in asked.operations.items()]
    fields += [f"{asked.at}.dtypes = {', '.join(can.dtypes)}", f"{asked.at}.codecs = {', '.join(can.codecs)}"]
    if not reduced:
        what = ", ".join(sorted({key.op for key in asked.operations})) or "nothing"
        return _answer(asked, "types and operations", "in the way", f"the job sends {what}: nothing is added", fields)
    if (undone := asked.declined(OperationError)) and asked.program() is None:
        return _answer(asked, "types and operations", "in the way", "; ".join(undone), fields)
    types = {mine.dtype for mine in reduced.values()}
    lacking = sorted(each for each in types if not _carried(can, each))
    if lacking:
        verdict: Literal["with care", "in the way"] = "in the way" if len(lacking) == len(types) else "with care"
        return _answer(asked, "types and operations", verdict, f"it does not add {', '.join(lacking)}", fields)
    coded = sorted({mine.dtype for mine in reduced.values() if mine.dtype not in can.dtypes})
    halves = sorted({key.op for key in asked.operations if key.op in HALVES})
    answer = "sums of " + ", ".join(sorted({mine.dtype for mine in reduced.values()})) + " are added"
    answer += f", {', '.join(coded)} as {', '.join(each for each in can.codecs if each != 'native')}" if coded else ""
    answer += (
        f"; {' and '.join(halves)} gain no time, for all data but one part leave or reach each rank anyway"
        if halves
        else ""
    )
    return _answer(asked, "types and operations", "with care" if coded or halves else "clear", answer, fields)


def _carried(can: Capability, dtype: str) -> bool:
    """Return whether a switch adds a type, as it is or in a number format of its own."""
    formats = [known for name, known in codecs().items() if name in can.codecs and name != "native"]
    return dtype in can.dtypes or any(dtype in each.carries and each.added_as in can.dtypes for each in formats)


def _size(asked: _Asked) -> Iterator[Obstacle]:
    """Which operations are as quick among hosts; nothing where both were not simulated."""
    known = {key: each for key, each in asked.hosts_s.items() if each is not None and key in asked.reduced}
    if asked.tier == "edge" or not known:
        return
    slower = sorted({key.size_bytes for key, hosts_s in known.items() if asked.operations[key].alone_s >= hosts_s})
    sizes = sorted({key.size_bytes for key in known})
    fields = [f"{_payload(asked.operations[key])}.size_bytes: {format_size(key.size_bytes)}" for key in known]
    fields += [
        f"costs of {key.op} of {format_size(key.size_bytes)}: {asked.operations[key].alone_s * 1e6:,.4g} us in the network,"
        f" {hosts_s * 1e6:,.4g} us by hosts"
        for key, hosts_s in known.items()
    ]
    if not slower:
        least = format_size(sizes[0])
        yield _answer(
            asked, "size", "clear", f"of the job's sizes, from {least} on, each is quicker in the network", fields
        )
        return
    told = f"{len(slower)} of {len(sizes)} sizes are as quick among hosts, up to {format_size(slower[-1])}"
    yield _answer(asked, "size", "in the way" if len(slower) == len(sizes) else "with care", told, fields)


def _topology(asked: _Asked) -> Obstacle:
    """Whether groups meet at these switches, and whether a switch has as many children as they bring."""
    topology, reduced = asked.costs.topology, asked.reduced
    spread = {len(_hosts(topology, mine.group)) for mine in reduced.values()}
    fields = [f"{asked.at}.fanin_max = {asked.can.fanin_max}", f"topology.hosts: groups on {_span(spread)} hosts"]
    fan_in = asked.declined(FanInError)
    if asked.tier == "core" and spread and max(spread) < 2:
        return _answer(asked, "fan-in and topology", "in the way", "every group lies within one host", fields)
    if asked.tier == "edge" and spread and max(spread) > 1:
        told = "inside hosts alone: groups reach over several, whose sums the network or the ranks add"
        return _answer(asked, "fan-in and topology", "with care", told, fields)
    made = asked.program()
    if made is None:
        return _answer(
            asked,
            "fan-in and topology",
            "in the way",
            (fan_in or [*asked.declined(), "no tree joins the groups"])[0],
            fields,
        )
    used = set(made.aggregators).intersection(asked.nodes)
    told = f"a tree of {len(used)} switch{'es' if len(used) > 1 else ''} joins {made.collective.p:,} ranks"
    told += "; " + "; ".join(fan_in) if fan_in else ""
    fields += [f"program.aggregators: {len(used)} of {len(asked.nodes)} switches"]
    return _answer(asked, "fan-in and topology", "with care" if fan_in else "clear", told, fields)


def _memory(asked: _Asked) -> Obstacle:
    """What the groups that are at work at once lease of a switch, beside what it has."""
    can, made, topology = asked.can, asked.program(), asked.costs.topology
    fields = [f"{asked.at}.memory_bytes = {can.memory_bytes}", f"{asked.at}.concurrency = {can.concurrency}"]
    if made is None:
        return _answer(
            asked, "memory and leases", "clear", "nothing is leased: no operation of the job is added there", fields
        )
    stream, _ = in_switches(made, topology)
    at_once = asked.at_once()
    leases = {
        node: [each for program in at_once for each in program.streams if each.node == node] for node in asked.nodes
    }
    node = max(leases, key=lambda each: len(leases[each]))
    slots = granted(leases[node], can)
    together = sum(
        count * each.versions * payload_bytes(each, can) for each, count in zip(leases[node], slots, strict=True)
    )
    fields += [f"program.streams: {stream.slots if stream else 0} slots, {stream.loss if stream else 'reliable'}"]
    told = (
        f"{len(at_once)} group{'s' if len(at_once) > 1 else ''} at once; they lease {format_size(together)} of"
        f" {format_size(can.memory_bytes)} and {len(leases[node])} of {can.concurrency} streams of {topology.label(node)}"
    )
    over = together > can.memory_bytes or len(leases[node]) > can.concurrency or 0 in slots
    return _answer(asked, "memory and leases", "in the way" if over else "clear", told, fields)


def _sharing(asked: _Asked) -> Obstacle:
    """Who else is there, and what a switch that adds must be let see."""
    costs, carrier = asked.costs, asked.costs.topology.transport or "not named"
    fields = [f"costs.others: {len(costs.others)} other jobs", f"topology.transport = {carrier}"]
    fields += [f"{asked.at}.concurrency = {asked.can.concurrency}"]
    told = "switches read what they add: data that is encrypted between hosts cannot be added"
    if asked.tier == "edge":
        return _answer(asked, "sharing and security", "clear", "a host's switch serves its own job", fields)
    if costs.others:
        told = f"{len(costs.others)} other jobs share the links, and may hold its leases (sharp:held=1); {told}"
    else:
        told = f"no other job was named (--beside); another may hold the leases (sharp:held=1); {told}"
    return _answer(asked, "sharing and security", "with care", told, fields)


def _order(asked: _Asked) -> Obstacle:
    """Whether sums are the same to the bit from run to run."""
    can, made = asked.can, asked.program()
    types = sorted({mine.dtype for mine in asked.reduced.values()})
    codecs = sorted({each.codec for each in made.streams}) if made is not None else []
    fields = [f"{asked.at}.order = {can.order}", *(f"program.streams.codec = {each}" for each in codecs)]
    fields += [f"{_payload(mine)}.dtype = {mine.dtype}" for mine in asked.reduced.values()]
    exact = all(each in INTEGERS for each in types) or codecs == ["block-exponent"]
    if can.order == "fixed" or exact:
        return _answer(asked, "order", "clear", "sums are the same to the bit in every run", fields)
    summed = ", ".join(types) or "floats"
    told = f"contributions are added as they arrive: sums of {summed} differ in their last bits from run to run"
    return _answer(asked, "order", "with care", told, fields)


def _payload(mine: OperationsAlike) -> str:
    return f"workload.payloads[{mine.first.payloads[0].name}]"


def _hosts(topology: Topology, group: tuple[int, ...]) -> list[int]:
    hosts = topology.hosts
    return list(group) if hosts is None else np.unique(hosts[list(group)]).tolist()


def _span(counts: set[int]) -> str:
    return "no" if not counts else f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(max(counts))
