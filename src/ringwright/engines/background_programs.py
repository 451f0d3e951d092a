"""A program while others run on the same machine, which begin again and again: what the first of them takes meanwhile.

The others repeat until the first is done: a repetition begins when all messages of the one before have arrived. By default rates
are shared fairly (the flow engine); ``events`` serves whole messages in the order in which they come, ``packets`` each packet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines import events, flows
from ringwright.engines.concurrent_programs import merged, started
from ringwright.engines.flat import flatten
from ringwright.engines.packets.carriage import wire_rates, without_losses
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import require_few
from ringwright.engines.packets.run import run as by_packets
from ringwright.engines.repetitions import repeated
from ringwright.engines.result import Run, loads
from ringwright.engines.switch_slots import machines
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

ENGINES = ("auto", "flows", "events", "packets")
MOST_MESSAGES = 1_000_000  # of all programs and their repetitions
NOT_ALIKE = "what runs beside it is not alike for all ranks"
LOWER_BOUND = "the time is a lower bound"
ENDED = f"that the other job goes on: it was followed for {{}} repetitions, so {LOWER_BOUND}"
BY_CHANCE = "that in another order of serving the program takes {:.2%} less by chance beside the other jobs"


def alone_and_beside(
    program: Program,
    others: Sequence[Program],
    topology: Topology,
    engine: str = "auto",
    *,
    alpha: str = "pipelined",
    native: bool = True,
    packets: PacketOptions | None = None,
    siblings: Sequence[Program] = (),
) -> tuple[Run, Run]:
    """Return the run of ``program`` by itself, and while ``others`` repeat on the same machine, which is never shorter.

    Both are of one model: where no program multicasts, what switches add is followed message by message, not as one stream.
    ``siblings`` belong to the same job, begin with the program, once, and count as part of it: it is done when they are.
    Where the others would repeat more often than can be followed the time is a lower bound, and ``left_out`` says so. Raises
    DeclinedError for an engine that follows no messages, InfeasibleError where a message never arrives.
    """
    if engine not in ENGINES:
        raise DeclinedError(
            f"the {engine} engine knows of one program alone", remedy="--engine flows, events or packets"
        )
    engine = "flows" if engine == "auto" else engine
    own, used = (program, *siblings), packets or PacketOptions()
    shared = _Shared(own, tuple(others), topology, engine, alpha, native, used)
    alone, _ = shared.run([])
    counts = [1] * len(others)
    if not counts:
        return alone, alone
    while True:
        run, ends_ps = shared.run(counts)
        short = [at for at, end_ps in enumerate(ends_ps) if end_ps < run.time_ps]
        if not short:
            break
        wanted = [2 * count if at in short else count for at, count in enumerate(counts)]
        if shared.messages(wanted) > MOST_MESSAGES:
            run = replace(run, left_out=(*run.left_out, ENDED.format(max(counts[at] for at in short))))
            break
        counts = wanted
    # Serving in another order can by chance help a program; what others do must not make it faster.
    if run.time_ps >= alone.time_ps:
        return alone, run
    return alone, replace(alone, left_out=(*run.left_out, BY_CHANCE.format(1 - run.time_ps / alone.time_ps)))


@dataclass(frozen=True)
class _Shared:
    """The programs of one job and its neighbours on a machine, laid out once."""

    own: tuple[Program, ...]
    others: tuple[Program, ...]
    topology: Topology
    engine: str
    alpha: str
    native: bool
    packets: PacketOptions

    @cached_property
    def on(self) -> Topology:
        """The machine, of packets with the rates of wires."""
        return wire_rates(self.topology) if self.engine == "packets" else self.topology

    @cached_property
    def _laid(self) -> tuple[list[MessageGraph], Machine]:
        programs = [*self.own, *self.others]
        each = machines(programs, without_losses(self.on) if self.engine == "packets" else self.on, self.alpha)
        graphs = [started(flatten(one, made), one.software.base_s) for one, made in zip(programs, each, strict=True)]
        if not any(graph.branches for graph in graphs):
            graphs = [replace(graph, tree=None, segment=None) for graph in graphs]
        count = len(self.own)
        return [merged(graphs[:count]), *graphs[count:]], each[-1]

    def messages(self, counts: Sequence[int]) -> int:
        """Return how many messages there are with so many repetitions of each of the others."""
        (first, *rest), _ = self._laid
        return first.n_messages + sum(graph.n_messages * count for graph, count in zip(rest, counts, strict=True))

    def run(self, counts: Sequence[int]) -> tuple[Run, list[int]]:
        """Return the run of the program, and when each of the others ended with so many repetitions, ps."""
        (first, *rest), made = self._laid
        repeats = [
            repeated(graph, count) for graph, count in zip(rest, counts, strict=False)
        ]  # no counts: none of them
        counted = [first.n_messages, *(graph.n_messages for graph in repeats)]
        jobs = np.repeat(np.arange(len(counted)), counted)
        run = self._simulated(merged([first, *repeats]), made.carrying(self.own[0]), jobs)
        bounds = np.cumsum(counted).tolist()
        ends = [int(run.end_ps[begin:end].max(initial=0)) for begin, end in pairwise(bounds)]
        start_ps, end_ps = run.start_ps[: first.n_messages], run.end_ps[: first.n_messages]
        own = replace(
            run,
            start_ps=start_ps,
            end_ps=end_ps,
            time_ps=int(end_ps.max(initial=0)),
            flat=first,
            base_ps=round(self.own[0].software.base_s * PS),
            unfolded_because=NOT_ALIKE,
        )
        return own.with_loads(made, loads(first, made.n)), ends

    def _simulated(self, whole: MessageGraph, carrying: Machine, jobs: np.ndarray) -> Run:
        if self.engine == "packets":
            require_few(whole, self.on, self.packets)
            return by_packets(whole, carrying, self.packets, self.on, native=self.native, jobs=jobs)
        if self.engine == "events":
            return events.run(whole, carrying, native=self.native)
        return flows.run(whole, carrying, native=self.native)
