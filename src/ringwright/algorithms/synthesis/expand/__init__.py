"""Greedy matching of chunks to links over time, of which the best of many runs is kept.

Idea: whenever a link is idle it takes of the chunks at its source one that its target lacks: the oldest there, of equally old ones
    the rarest. Several chunks may go as one message; a set of ranks behind a bottleneck (a host behind its NICs) gets no
    chunk twice. What is collected runs backwards in time.
Cost: none in closed form: the steps of the best run, its largest message in each.
Knobs: chunks of a block and merge, the most chunks of a message (none: what is best at the size); tries, how many runs; seed of the
    lots; link-model, whether a link is busy during its latency; budget of seconds, which only stops the search.
Holds: the engine takes the time that the search says where each arc is one link, blocking or not, and data are gathered.
Figure: TACOS, table of design tori and meshes at 1 GiB: within 2.1 % of the bound of cuts (here: within 1 %).
Source: Won et al., TACOS, arXiv 2304.05301; oldest first, yards, merging and tapering: ours.
Declines: groups whose chunks make more than a million deliveries; operations that are neither gathered, collected nor exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.searching import ALPHA_OF, Budget, Deadline, LinkModel, Pieces, told
from ringwright.algorithms.synthesis.expand._search import Find, Phase, Search, network
from ringwright.algorithms.synthesis.expand._yards import partitions
from ringwright.costs.arcs import Arcs, arcs
from ringwright.costs.forests import hops
from ringwright.engines.choose import simulate
from ringwright.engines.machine import machine
from ringwright.errors import DeclinedError
from ringwright.knobs import Range, Seed
from ringwright.program import Block, Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.expand._loop import Matched
    from ringwright.collective import Collective
    from ringwright.program import Layout
    from ringwright.topology import Topology

OPS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "all-to-all")
FABRICS = ("ring", "full", "switch", "torus:2x3", "mesh:3x3", "dgx-1:1")
MOST_DELIVERIES = 1_000_000
COLLECTING, SPREADING = ("reduce-scatter", "reduce", "all-reduce"), ("all-gather", "broadcast", "all-reduce")

Tries = Annotated[int, Range(1, 4096)]


def expand(
    collective: Collective,
    topology: Topology | None = None,
    *,
    chunks: Pieces | None = None,
    merge: Pieces | None = None,
    tries: Tries = 64,
    link_model: LinkModel = "pipelined",
    seed: Seed = 0,
    budget: Budget | None = None,
) -> Program:
    """Return the program of the best of many greedy runs for a collective on a machine."""
    require_op("expand", collective, OPS)
    require_commutative("expand", collective)
    if collective.p == 1:
        return nothing("expand", collective)
    question = _Question(collective, _machine(collective, topology), ALPHA_OF[link_model])
    question.require_few(chunks or 1)
    deadline = Deadline(budget)
    search = Search(question.phases, question.yards, question.sizes, question.most_chunks, seed, deadline)
    finds = search.best(tries, chunks, merge)
    find, program = question.shortest(finds)
    sent, joined, taper, yards = find.setting
    facts = {"chunks": sent, "merge": joined, "taper": taper, "yards": len(set(question.yards[yards].tolist()))}
    return told(program, **facts, runs=len(search.finds), seed=find.seed, stopped=deadline.stopped)


def _machine(collective: Collective, topology: Topology | None) -> Topology:
    """Return the machine as it is at the start; without one, ranks that are joined pair by pair."""
    if topology is None:
        from ringwright.wiring import Dimension, lattice

        return lattice("full", [Dimension("full", collective.p, 1e9, 1e-6, "rank")])
    return topology.at(0.0) if topology.faults else topology


class _Question:
    """One collective on one machine: phases over the same chunks, and the programs that runs of them are."""

    def __init__(self, collective: Collective, topology: Topology, alpha: str) -> None:
        self.collective, self.topology, self.alpha = collective, topology, alpha
        p, op = collective.p, collective.op
        made = arcs(topology, collective.group, turning=False)
        if op in ("broadcast", "reduce"):
            self.roots = np.array([collective.root])
        else:
            self.roots = np.arange(p * p) // p if op == "all-to-all" else np.arange(p)
        exchanges = op == "all-to-all"
        group = np.asarray(collective.group, np.int64)
        self.yards = [np.zeros(0, np.int32)] if exchanges else partitions(topology, group, made)
        engine = machine(topology, alpha)
        turned = made.turned_round()
        if exchanges:
            self.phases = [self._exchange(network(engine, made), turned)]
            return
        self.phases = [self._spread(network(engine, turned), turned)] if op in COLLECTING else []
        if op in SPREADING:
            self.phases.append(self._spread(network(engine, made), made))

    def _spread(self, net: object, made: Arcs) -> Phase:
        hops(made, np.unique(self.roots))  # raises where one cannot be reached
        n = len(self.roots)
        targets = np.full(n, -1, np.int32)
        count = n * (self.collective.p - 1)
        return Phase(net, self.roots.astype(np.int32), targets, np.zeros(0, np.int32), count, made.reversed)

    def _exchange(self, net: object, turned: Arcs) -> Phase:
        p = self.collective.p
        far = hops(turned, np.arange(p)).astype(np.int32)
        targets = np.tile(np.arange(p, dtype=np.int32), p)
        return Phase(net, self.roots.astype(np.int32), targets, far.ravel(), int(far.sum()))

    def require_few(self, chunks: int) -> None:
        """Raise DeclinedError where even one run delivers more chunks than can be held."""
        count = chunks * sum(phase.deliveries for phase in self.phases)
        if count > MOST_DELIVERIES:
            raise DeclinedError(
                f"{chunks} chunks a block make {count:,} deliveries, more than {MOST_DELIVERIES:,}",
                where=f"{self.collective.p:,} ranks",
                remedy="fewer chunks or ranks, or forest, which folds what is symmetric",
            )

    @property
    def most_chunks(self) -> int:
        """Chunks of a block that are an element at the least."""
        sizes = self.sizes(1)
        return max(1, int(sizes[sizes > 0].min()) // self.collective.unit_bytes) if sizes.any() else 1

    def layout(self, chunks: int) -> Layout:
        """Return the layout in which a root's block is cut into ``chunks``."""
        return cut(self.collective, chunks * len(self.roots) // self.collective.n_blocks)

    def sizes(self, chunks: int) -> np.ndarray:
        """Return the bytes of every chunk, int64 of shape (chunks,)."""
        layout = self.layout(chunks)
        return layout.bytes_of(np.arange(layout.n_chunks))

    def shortest(self, finds: list[Find]) -> tuple[Find, Program]:
        """Return the find that the engine needs least time for, and its program."""
        if len(finds) == 1 or len(self.phases) == 1 and not self.phases[0].collects and self._is_direct():
            return finds[0], self.program(finds[0])
        made = [(find, self.program(find)) for find in finds]
        times = [simulate(program, self.topology, alpha=self.alpha).time_ps for _, program in made]
        return made[times.index(min(times))]

    def _is_direct(self) -> bool:
        return bool((np.diff(self.phases[0].net.hop_starts) == 1).all())

    def program(self, find: Find) -> Program:
        """Return the runs of a find as a program."""
        layout = self.layout(find.setting[0])
        moves = [_Moves(phase, run) for phase, run in zip(self.phases, find.runs, strict=True)]
        return Program(
            "expand",
            self.collective,
            layout,
            lambda: (step for each in moves for step in each.steps()),
            sum(each.n_steps for each in moves),
            _cost(moves, layout),
        )


class _Moves:
    """The messages of a run as steps, forwards or backwards."""

    def __init__(self, phase: Phase, run: Matched) -> None:
        step = run.step.astype(np.int64)
        self.n_steps = int(step.max(initial=-1)) + 1
        src, dst = phase.net.src[run.arc].astype(np.int64), phase.net.dst[run.arc].astype(np.int64)
        order = np.arange(len(step))
        if phase.collects:
            src, dst, step, order = dst, src, self.n_steps - 1 - step, order[::-1]
        self.op, self.label = (Op.REDUCE, "collect") if phase.collects else (Op.SEND, "spread")
        order = order[np.argsort(step[order], kind="stable")]
        counts = np.diff(run.starts)[order]
        ends = np.cumsum(counts)
        at = np.repeat(run.starts[:-1][order] - (ends - counts), counts) + np.arange(len(run.pieces))
        self.src, self.dst = np.repeat(src[order], counts), np.repeat(dst[order], counts)
        self.chunk = run.pieces[at].astype(np.int64)
        self.message = np.repeat(np.arange(len(order)), counts)
        step_of_piece = np.repeat(step[order], counts)
        self.bounds = np.searchsorted(step_of_piece, np.arange(self.n_steps + 1))

    def steps(self) -> Iterator[Step]:
        """Yield the steps in the order of time."""
        for begin, end in zip(self.bounds.tolist(), self.bounds[1:].tolist(), strict=False):
            yield Step((self._block(slice(begin, end)),), self.label)

    def _block(self, mine: slice) -> Block:
        return explicit(self.op, self.src[mine], self.dst[mine], self.chunk[mine])

    def largest(self, layout: Layout) -> tuple[float, float]:
        """Return the bytes of the largest message of each step, added up, and all bytes."""
        sizes = layout.bytes_of(self.chunk)
        messages = np.bincount(self.message, weights=sizes)
        first = np.searchsorted(self.message, np.arange(len(messages)))
        step = np.searchsorted(self.bounds, first, side="right") - 1
        most = np.zeros(self.n_steps)
        np.maximum.at(most, step, messages)
        return float(most.sum()), float(sizes.sum())


def _cost(moves: list[_Moves], layout: Layout) -> Cost:
    """Return the declared cost: in each step the largest message, and all that is sent."""
    largest = [each.largest(layout) for each in moves]
    added = sum(path for each, (path, _) in zip(moves, largest, strict=True) if each.op is Op.REDUCE)
    term = Term(sum(each.n_steps for each in moves), sum(path for path, _ in largest))
    return Cost((term,), sum(sent for _, sent in largest), added, is_even=len(layout.chunk_bytes) == 1)
