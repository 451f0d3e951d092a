"""CoCoNet's figures: an optimizer on slices against measured baselines, and what its schedules cost by their closed forms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ringwright.fabrics import fabric
from ringwright.graph.algebra.account import totals
from ringwright.graph.algebra.stages import StageProgram
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.model.stages import Costs, LinkCosts, Stage
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.coconet import autotuned, coconet, step_s
from ringwright.schedulers.decompose.coconet.schedules import message_schedules, optimizer_schedules, product_schedules

RANKS = 128
# Microseconds of an iteration on 128 V100-class GPUs, single precision, the best of NCCL's algorithms (ring, tree, its choice),
# from the raw logs of parasailteam/coconet (MIT licence), examples/pytorch-optimizers-results-128-gpus-all-algos: an all-reduce,
# then Apex FusedAdam; and FusedAdam of these alone.
BASELINE_US = {
    1 << 17: (295.588, 61.010),
    1 << 28: (35949.651, 9509.129),
    1 << 29: (71899.619, 18800.294),
    1 << 30: (143473.916, 40532.196),
}


@dataclass(frozen=True)
class MeasuredSum:
    """An all-reduce of measured seconds, of which its scatter and its gather take half each; ``small_s`` is a number's."""

    all_reduce_s: float
    small_s: float = 0.0

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        if size_bytes < 64:
            return (Stage(self.small_s),)
        return (Stage(self.all_reduce_s if op == "all-reduce" else self.all_reduce_s / 2),)


def optimizer(kind: str, ranks: int, elements: int, update_s: float = 0.0) -> Workload:
    """Return a gradient's sum and an update of ``sgd``, ``adam`` or ``lamb`` shape that takes ``update_s`` seconds.

    Square roots and quotients are products here: whole numbers stay whole, and what reads what is the same.
    """
    step = StageProgram(ranks, n=elements)
    gradient, weights = step.input("g", "n", "local"), step.input("w", "n", kind="parameter")
    total = step.all_reduce("sum", gradient)
    if kind == "sgd":
        step.update(weights, step.pointwise("w1", "update", weights, total, seconds=update_s))
        return step.done("sgd")
    stages = 9 if kind == "lamb" else 7
    each_s = update_s / stages
    first, second = step.input("m", "n", kind="optimizer"), step.input("v", "n", kind="optimizer")
    faded = step.pointwise("m.faded", "scale", first, by=2, seconds=each_s)
    first = step.update(first, step.pointwise("m1", "add", faded, total, seconds=each_s))
    squared = step.pointwise("g.squared", "square", total, seconds=each_s)
    faded = step.pointwise("v.faded", "scale", second, by=3, seconds=each_s)
    second = step.update(second, step.pointwise("v1", "add", faded, squared, seconds=each_s))
    move = step.pointwise("move", "multiply", first, second, seconds=each_s)
    if kind == "lamb":
        norm = step.reduce_tensor("norm", step.pointwise("move.squared", "square", move, seconds=each_s))
        move = step.pointwise("scaled", "multiply", move, norm, seconds=each_s)
    step.update(weights, step.pointwise("w1", "update", weights, move, seconds=each_s))
    return step.done(kind)


@cache
def speed_up(elements: int) -> float:
    """Return the measured baseline against CoCoNet's step, with the baseline's own all-reduce and update as all its input."""
    total_us, update_us = BASELINE_US[elements]
    costs = MeasuredSum((total_us - update_us) * 1e-6)
    made = coconet(optimizer("adam", RANKS, elements, update_us * 1e-6), costs)
    return total_us * 1e-6 / step_s(made, costs)


def candidates(kind: str) -> float:
    """Return how many schedules the tuner tries, 0 where they are not AR-C, RS-C-AG and fuse(RS-C-AG)."""
    names = [name for name, _ in optimizer_schedules(optimizer(kind, 4, 64), "sum")]
    return float(len(names)) if names == ["AR-C", "RS-C-AG", "fuse(RS-C-AG)"] else 0.0


# ------------------------------------------------------------------------------------------------------- on a fabric
@cache
def _cluster() -> Costs:
    """Return eight DGX-2 of 16 V100 with NCCL: trees for sums, rings for their halves."""
    return on_fabric(fabric("dgx-2:8"), optimizer("adam", RANKS, 1 << 20))


UPDATE_BYTES, V100_BYTES_S = 28, 800e9  # read and written for an element by Adam; what of 900 GB/s is used (assumed)


@cache
def tuned_on_fabric(elements: int) -> str:
    """Return the schedule that the tuner takes for so many elements."""
    update_s = elements * UPDATE_BYTES / V100_BYTES_S
    return autotuned(optimizer("adam", RANKS, elements, update_s), _cluster(), "sum")[0]


def switch_elements() -> float:
    """Return the largest power of two of elements for which AR-C is the fastest, 0 where it is so for none."""
    sizes = (1 << power for power in range(30, 9, -1))
    return float(next((size for size in sizes if tuned_on_fabric(size) == "AR-C"), 0))


# ------------------------------------------------------------------------------------------------------ closed forms
def overlapped_product(shift: float, ranks: int = 4) -> float:
    """Return the seconds of ol(MM, fuse(RS-C-AG)) of a product of 1 s; a shift takes ``shift`` times as long as a block of it."""
    step = StageProgram(ranks, b=8 * ranks, h=16, f=4 * ranks)
    x, w = step.input("x", "b f", "sliced", "f"), step.input("w", "f h", "sliced", "f")
    total = step.all_reduce("sum", step.matmul("y", x, w, "b h", seconds=1.0))
    step.pointwise("out", "add", total, step.input("r", "b h"))
    made = dict(product_schedules(step.done(), "sum"))["ol(MM, fuse(RS-C-AG))"]
    block = 8 * 16 * 4
    return step_s(made, LinkCosts(block * ranks / shift, ring=True))


def message_share(ranks: int) -> float:
    """Return the bytes of AR-P2P-C's message against those of ol(RS, fuse(P2P-C-AG))."""
    step = StageProgram(ranks, groups=2, b=2 * ranks, h=4)
    arrived = step.send("z", step.all_reduce("sum", step.input("x", "b h", "local")))
    step.pointwise("out", "add", arrived, step.input("r", "b h", group=1))
    made = dict(message_schedules(step.done(), "sum", dim="h"))
    before, after = (totals(made[name]).wire_bytes["pp"] for name in ("AR-P2P-C", "ol(RS, fuse(P2P-C-AG))"))
    return before / after
