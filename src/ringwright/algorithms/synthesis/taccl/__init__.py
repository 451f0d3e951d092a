"""TACCL: a sketch of the links to use shrinks the search for a program that fits a machine of several boxes.

Idea: a sketch says which links are used, who relays to other boxes and what looks the same. Within it every chunk gets a route,
    sends get an order on each link, and sends that go back to back over a link of high latency become one message. Sketches come
    from files, or from the machine's own structure.
Cost: a message of m chunks takes alpha + m beta on its link; ports of a switch serve one at a time. The critical path of the
    timetable is declared, by class of links.
Knobs: sketch, a file of TACCL's format (none: made from the machine); chunks that a block is cut into (none: those of the sketch,
    else the best of 1, 4 and 16); paths=relayed (hops: the shortest by number of links, whoever relays, as the public tool asks);
    effort, from 0 on (1: a second or two; none: 8 with a sketch, else 0.1; from 1 on integer programs are asked); budget in
    seconds; seed=0 of the solvers; link_model=pipelined (blocking: a link is busy during its latency, as in the paper).
Holds: the program's time on the sketch's own links is that of the timetable, to the picosecond where a link is one wire.
Figure: up to 6.7x faster than NCCL, training 11 % to 2.3x faster, on 2 to 4 NDv2 and 2 DGX-2 (abstract).
Source: Shah et al.: TACCL, NSDI 2023, arXiv 2111.04867; inputs of microsoft/taccl. The search by congestion and by sizes is ours.
Declines: scans, gather, scatter; reductions in the order of the ranks; more than 60,000 sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.searching import Budget, Deadline, LinkModel, told
from ringwright.algorithms.synthesis.taccl.demands import demands
from ringwright.algorithms.synthesis.taccl.emission import program
from ringwright.algorithms.synthesis.taccl.search import Search
from ringwright.algorithms.synthesis.taccl.sketch import wiring
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.ground.knobs import Pattern, Range, Seed
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.taccl.sketch import LogicalTopology
    from ringwright.model.collective import Collective
    from ringwright.model.sketches import Sketch
    from ringwright.model.topology import Topology

OPS = ("all-gather", "all-to-all", "reduce-scatter", "all-reduce", "broadcast", "reduce")
FABRICS = ("switch", "ring", "full", "dgx-1:1", "torus:2x2", "ndv2:2")
SKETCH_FILE = Pattern(r"[^\x00:]{1,4000}\.json", "a sketch file (NAME.json)", ("sk1-ndv2-n2.json",))
MOST_SENDS = 60_000
CUTS = (1, 4, 16)  # tried where nobody says how many chunks
LEAST_GAIN = 1e-3  # of the least latency, which all bytes together take: below it nothing is won by cutting them
WORK = 100_000  # sends put into timetables for an effort of 1
PROVED = 1  # effort from which integer programs are asked
SOLVER_S = 0.05  # deterministic seconds of CP-SAT for an effort of 1


def taccl(
    collective: Collective,
    topology: Topology | None = None,
    *,
    sketch: Annotated[str, SKETCH_FILE] | Sketch | None = None,
    chunks: Annotated[int, Range(1, 256)] | None = None,
    paths: Literal["relayed", "hops"] = "relayed",
    effort: Annotated[float, Range(0, 20)] | None = None,
    budget: Budget | None = None,
    seed: Seed = 0,
    link_model: LinkModel = "pipelined",
) -> Program:
    """Return the fastest program that the search finds within the sketch."""
    require_op("taccl", collective, OPS)
    require_commutative("taccl", collective)
    if collective.p == 1:
        return nothing("taccl", collective)
    _require_few(collective, chunks or 1)
    drawn = _read(sketch) if isinstance(sketch, str) else sketch
    wires = wiring(collective, topology, drawn)
    spent = (0.1 if drawn is None else 8.0) if effort is None else effort
    ask = _Asked(collective, wires, Deadline(budget), spent, seed, link_model == "blocking", paths == "hops")
    best: Search | None = None
    for parts in _cuts(collective, wires, drawn.chunks if drawn is not None and chunks is None else chunks):
        search = ask.search(parts)
        if best is None or search.result.time_ps < best.result.time_ps:
            best, kept = search, parts
        if ask.deadline.passed():
            break
    assert best is not None  # noqa: S101 - the first cut is always searched
    result = best.result
    made = program("taccl", result, {"link_model": link_model})
    facts: dict[str, object] = {"chunks": kept, "sketch": wires.name, "routes": result.routing}
    facts["time_us"] = result.time_ps / 1e6
    if best.least_ps is not None:
        facts["order_bound_us"] = best.least_ps / 1e6
    return told(made, **facts, **({"stopped": True} if ask.deadline.stopped else {}))


@dataclass(frozen=True)
class _Asked:
    """What is searched for, and how much may be spent on it."""

    collective: Collective
    wires: LogicalTopology
    deadline: Deadline
    effort: float
    seed: int
    blocking: bool
    hops: bool

    def search(self, parts: int) -> Search:
        """Return the search of one cut, ended: by itself, by the budget, or by a person."""
        work = round(self.effort * WORK)
        demand = demands(self.collective, parts)
        search = Search(demand, self.wires, self.deadline, work, blocking=self.blocking, hops=self.hops)
        try:
            search.run()
            if self.effort >= PROVED:
                search.proved(self.effort * SOLVER_S, self.seed)
        except KeyboardInterrupt:
            if search.best is None:
                raise
            self.deadline.interrupted()
        return search


def _cuts(collective: Collective, wires: LogicalTopology, chunks: int | None) -> tuple[int, ...]:
    """Return the numbers of chunks to try: all that are few enough and may gain more than ``LEAST_GAIN``, whatever the size.

    What is better for more bytes is then tried for fewer too, and none takes longer for them.
    """
    if chunks is not None:
        _require_few(collective, chunks)
        return (chunks,)
    bytes_ps = float(collective.block_bytes.sum()) * max((arc.byte_ps for arc in wires.arcs), default=0.0)
    latency_ps = min((arc.latency_ps for arc in wires.arcs), default=0)
    if bytes_ps <= LEAST_GAIN * latency_ps:
        return (1,)
    most = MOST_SENDS // 8 // _least_sends(collective)
    return (1, *(cut for cut in CUTS if 1 < cut <= most))


def _least_sends(collective: Collective) -> int:
    """Return the sends of a collective whose blocks are whole."""
    each = collective.p - 1
    if collective.op in ("broadcast", "reduce"):
        return each
    return each * collective.p * (2 if collective.op == "all-reduce" else 1)


def _require_few(collective: Collective, chunks: int) -> None:
    sends = chunks * _least_sends(collective)
    if sends > MOST_SENDS:
        raise DeclinedError(
            f"taccl: {collective.label} is {sends:,} sends and more; at most {MOST_SENDS:,} are ordered",
            remedy="fewer ranks or chunks, or taccl as inner= of a hierarchical algorithm",
        )


def _read(path: str) -> Sketch:
    from ringwright.model.sketches import read_sketch

    if not Path(path).is_file():
        raise UsageError(f"there is no sketch {path}", remedy="sketch=FILE, or none: it is made from the machine")
    return read_sketch(path)
