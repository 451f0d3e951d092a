"""Greedy matching of chunks to links over time, of which the best of many runs is kept.

Idea: whenever a link is idle it takes of the chunks at its source one that its target lacks: the oldest there, of equally
    old ones the rarest (or the rarest of all). Several chunks may go as one message; a set of ranks behind a bottleneck (a
    host behind its NICs) gets no chunk twice. What is collected runs backwards in time.
Cost: none in closed form: the steps of the best run, its largest message in each.
Knobs: chunks of a block and merge, the most chunks of a message (none: what is best at the size); tries, how many runs; seed of
    the lots; link_model, whether a link is busy during its latency; budget of seconds, which only stops the search.
Holds: the engine takes no longer than the search says; where it would serve in another order, the order is declared.
Figure: all-gather of 1 GiB on meshes and tori of up to 64 ranks within 2.1 % of the bound of cuts (TACOS, measured; links that
    block); here within 1 %.
Source: Won et al., TACOS, arXiv 2304.05301; oldest first, yards, merging, tapering and the declared order: ours.
Declines: a group of which one run delivers more than a million chunks; what is neither gathered, collected nor exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from ringwright.algorithms.declared_order import in_order
from ringwright.algorithms.networks import machine_of, network
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.run_moves import RunMessages, RunMoves, cost, entries
from ringwright.algorithms.searching import ALPHA_OF, Budget, Deadline, LinkModel, Pieces, told
from ringwright.algorithms.synthesis.expand._search import Find, GreedyPhase, GreedySearch
from ringwright.algorithms.synthesis.expand._yards import partitions
from ringwright.bounds.arcs import Arcs, arcs
from ringwright.bounds.forests import hops
from ringwright.engines.choose import simulate
from ringwright.engines.machine import machine
from ringwright.ground.errors import DeclinedError
from ringwright.ground.knobs import Range, Seed
from ringwright.model.program import Program, cut, nothing

if TYPE_CHECKING:
    from ringwright.algorithms.arcs_in_use import TimedMessages
    from ringwright.algorithms.networks import ArcNetwork
    from ringwright.model.collective import Collective
    from ringwright.model.program import Layout
    from ringwright.model.topology import Topology

OPS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "all-to-all")
FABRICS = ("ring:8", "full:6", "switch:8", "torus:2x3", "mesh:3x3", "dgx-1:1")
MOST_DELIVERIES = 1_000_000
COLLECTING, SPREADING = ("reduce-scatter", "reduce", "all-reduce"), ("all-gather", "broadcast", "all-reduce")

Tries = Annotated[int, Range(1, 4096)]


def expand(
    collective: Collective,
    topology: Topology | None = None,
    *,
    chunks: Pieces | None = None,
    merge: Pieces | None = None,
    tries: Tries = 128,
    link_model: LinkModel = "pipelined",
    seed: Seed = 0,
    budget: Budget | None = None,
) -> Program:
    """Return the program of the best of many greedy runs for a collective on a machine."""
    require_op("expand", collective, OPS)
    require_commutative("expand", collective)
    if collective.p == 1:
        return nothing("expand", collective)
    question = _Question(collective, machine_of(collective, topology), ALPHA_OF[link_model])
    question.require_few(chunks or 1)
    deadline = Deadline(budget)
    search = GreedySearch(question.phases, question.yards, question.sizes, question.most_chunks, seed, deadline)
    finds = search.best(tries, chunks, merge)
    find, program = question.shortest(finds)
    sent, joined, taper, yards, rarest = find.setting
    facts = {
        "chunks": sent,
        "merge": joined,
        "taper": taper,
        "order": ("oldest", "rarest")[rarest],
        "yards": len(set(question.yards[yards].tolist())),
    }
    return told(program, **facts, runs=len(search.finds), seed=find.seed, stopped=deadline.stopped)


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
        self.machine = machine(topology, alpha)
        turned = made.turned_round()
        if exchanges:
            self.phases = [self._exchange(network(self.machine, made, collective.group), turned)]
            return
        self.phases = (
            [self._spread(network(self.machine, turned, collective.group), turned)] if op in COLLECTING else []
        )
        if op in SPREADING:
            self.phases.append(self._spread(network(self.machine, made, collective.group), made))

    def _spread(self, net: ArcNetwork, made: Arcs) -> GreedyPhase:
        hops(made, np.unique(self.roots))  # raises where one cannot be reached
        n = len(self.roots)
        targets = np.full(n, -1, np.int32)
        count = n * (self.collective.p - 1)
        return GreedyPhase(net, self.roots.astype(np.int32), targets, np.zeros(0, np.int32), count, made.reversed)

    def _exchange(self, net: ArcNetwork, turned: Arcs) -> GreedyPhase:
        p = self.collective.p
        far = hops(turned, np.arange(p)).astype(np.int32)
        targets = np.tile(np.arange(p, dtype=np.int32), p)
        return GreedyPhase(net, self.roots.astype(np.int32), targets, far.ravel(), int(far.sum()))

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

    def layout(self, chunks: int, copies: int = 1) -> Layout:
        """Return the layout in which a root's block is cut into ``chunks``."""
        return cut(self.collective, chunks * len(self.roots) // self.collective.n_blocks, copies=copies)

    def sizes(self, chunks: int) -> np.ndarray:
        """Return the bytes of every chunk, int64 of shape (chunks,)."""
        layout = self.layout(chunks)
        return layout.bytes_of(np.arange(layout.n_chunks))

    def shortest(self, finds: list[Find]) -> tuple[Find, Program]:
        """Return the find that the engine needs least time for, and its program: as its data order it, or as declared."""
        known: list[tuple[int, Find, Program]] = []
        for find in finds:
            free, times = self.programs(find)
            if self._is_exact() and not find.setting[-1]:
                return find, free
            declared = in_order(free, self.machine, *times)
            for program in (free, declared):
                took = simulate(program, self.topology, alpha=self.alpha).time_ps
                known.append((took, find, program))
                if took <= find.makespan:
                    return find, program
        best = min(known, key=lambda each: each[0])
        return best[1], best[2]

    def _is_exact(self) -> bool:
        """Whether the engine does as the run does without being told: data spread, over arcs of one link each, oldest first."""
        direct = bool((np.diff(self.phases[0].net.hop_starts) == 1).all())
        return direct and len(self.phases) == 1 and not self.phases[0].collects

    def programs(self, find: Find) -> tuple[Program, tuple[np.ndarray, np.ndarray]]:
        """Return the runs of a find as a program, and start and end of its messages in the order of its steps."""
        moves = [_moves(phase, run) for phase, run in zip(self.phases, find.runs, strict=True)]
        layout = self.layout(find.setting[0], copies=max(each.copies for each in moves))
        program = Program(
            "expand",
            self.collective,
            layout,
            lambda: (step for each in moves for step in each.steps(layout.n_chunks)),
            sum(each.n_steps for each in moves),
            cost(moves, layout),
        )
        begins = np.cumsum([0, *(each.makespan for each in find.runs[:-1])])
        names = [each.named() for each in moves]
        start = [each.run.start[name] + begin for each, name, begin in zip(moves, names, begins, strict=True)]
        end = [each.run.end[name] + begin for each, name, begin in zip(moves, names, begins, strict=True)]
        return program, (np.concatenate(start), np.concatenate(end))


def _moves(phase: GreedyPhase, run: TimedMessages) -> RunMoves:
    """Return the messages of a run as moves, backwards where data are collected."""
    step, number, n = run.step.astype(np.int64), np.arange(len(run.step)), len(run.step)
    src, dst = phase.net.src[run.arc].astype(np.int64), phase.net.dst[run.arc].astype(np.int64)
    start, end = run.start, run.end
    if phase.collects:
        src, dst, step, number = dst, src, int(step.max(initial=-1)) - step, number[::-1]
        start, end = run.makespan - run.end, run.makespan - run.start
    order = number[np.argsort(step[number], kind="stable")]
    chunk = run.pieces[entries(run.starts, order)].astype(np.int64)
    messages = RunMessages(src, dst, np.full(n, phase.collects), step, start, end)
    return RunMoves(messages, np.repeat(order, np.diff(run.starts)[order]), chunk)
