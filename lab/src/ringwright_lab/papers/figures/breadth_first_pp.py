"""Figures of breadth-first pipelines, in units of a stage's forward pass; and what is gathered and summed in a step."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from ringwright.graph.pipelines import order
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.breadth_first_pp import breadth_first_pp
from ringwright_lab.papers.figures.pipelines import UnitCosts, computed, ended, plain, units

FREE = UnitCosts()


def made(p: int, m: int, v: int, policy: str, *, sharded: bool = False) -> Workload:
    """Return a pipeline with the passes of a policy: breadth-first, depth-first, or plain 1F1B."""
    if policy == "1f1b":
        return plain(p, m, v)
    step = units(p, m, v, sharded=sharded)
    return breadth_first_pp(step, FREE) if policy == "breadth-first" else step


def makespan(p: int, m: int, v: int, policy: str = "breadth-first") -> float:
    """Return the units of a step without sums."""
    return computed(made(p, m, v, policy))


def with_sums(policy: str, share: float, p: int = 8, m: int = 16, v: int = 4) -> float:
    """Return the units of a step whose sums take ``share`` of its compute, until the last sum has ended."""
    stages = 1 if policy == "1f1b" else v
    return ended(made(p, m, v, policy), UnitCosts(3 * m * v * share / stages))


def over_flush(share: float, p: int = 8, m: int = 16, v: int = 4) -> float:
    """Return how many times longer depth first with all sums behind its last pass is."""
    late = makespan(p, m, v, "depth-first") + 3 * m * v * share
    return late / with_sums("breadth-first", share, p, m, v)


def over_flush_growth(share: float, small: int, large: int) -> float:
    """Return by how much that gain is larger with few micro-batches than with many, sums as long as at ``small``."""
    return over_flush(share, m=small) - over_flush(share * small / large, m=large)


@cache
def sums_of_a_stage(p: int, m: int, v: int) -> float:
    """Return how many sums a step has for each stage, sharded or not."""
    counts = {
        sum(each.role == "dp" and each.op != "all-gather" and each.per == "step" for each in step.payloads) / (p * v)
        for step in (made(p, m, v, "breadth-first"), made(p, m, v, "breadth-first", sharded=True))
    }
    return counts.pop() if len(counts) == 1 else float("nan")


def gathers(p: int, m: int, v: int) -> float:
    """Return the gathers of a step of all stages."""
    step = made(p, m, v, "breadth-first", sharded=True)
    mine = [each for each in step.payloads if each.op == "all-gather"]
    return float(sum(m if each.per == "micro-batch" else 1 for each in mine))


def turns(p: int, m: int, v: int, spelling: str) -> float:
    """Return how often devices turn to another stage, forward and backward: what must be gathered anew if one is kept."""
    total = 0
    for device in range(p):
        slots = order(spelling, p, device, m, v)
        for phase in ("F", "B"):
            chunks = [chunk for what, chunk, _ in slots if what == phase]
            total += 1 + sum(one != other for one, other in pairwise(chunks))
    return float(total)


def sharded_over_whole(gather_s: float, p: int = 4, m: int = 16, v: int = 4) -> float:
    """Return how much longer a step is whose parameters are gathered, each gather and scatter as long as ``gather_s``."""
    whole = computed(made(p, m, v, "breadth-first"))
    return ended(made(p, m, v, "breadth-first", sharded=True), UnitCosts(2 * gather_s)) / whole
