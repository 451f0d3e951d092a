"""Figures of the looped CollectiveEinsum: its cost model beside an ideal ring, and asynchronous tensor parallelism on H100s."""

from __future__ import annotations

from functools import cache

from ringwright.engines.job.flat import Interference
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric
from ringwright.graph.algebra.build import Build, sliced
from ringwright.jobs.model_job import GeneratedJobSpec, made
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Mesh, Workload
from ringwright.schedulers.decompose.collective_einsum_overlap import collective_einsum_overlap, looped_gain
from ringwright_lab.papers.figures.fit import crossing

PRODUCT_S, BLOCK_BYTES = 1.0, 1 << 20
SWEPT_R, SWEPT_P = (0.15, 0.25, 0.35, 0.5), (8, 16)
# torchtitan's configurations: model -> (GPUs, data parallel, sequences a GPU group, recomputation)
TORCHTITAN = {"llama3-70b": (256, 32, 16, "full"), "llama3-8b": (64, 8, 12, "none")}
MEASURED = Interference("measured", gpu="h100")
MEMORY = 2.4e12  # bytes/s of these H100s' HBM2e, as published with the figures


# ------------------------------------------------------------------------------------------------------------- one site
def site(ranks: int) -> Workload:
    """Return a product of a gathered operand, and nothing else: it takes a second."""
    graph = Build(Mesh((("tp", ranks),)), d=2 * ranks, h=4, f=4)
    before = graph.task(
        "before", "", [graph.input("x", "d h", sliced("tp", "d"))], "d h", sliced("tp", "d"), seconds=0.0
    )
    whole = graph.send("whole", "AG", before, "tp")
    product = graph.task("product", "einsum", [whole, graph.input("w", "h f")], "d f", seconds=PRODUCT_S)
    graph.task("after", "", [product], "d f", seconds=0.0)
    return graph.step()


def ring(made_of: Workload, r: float) -> LinkCosts:
    """Return a ring on which the gather takes ``r`` products."""
    ranks = made_of.mesh.size
    size = made_of.payload["whole"].size_bytes
    return LinkCosts((ranks - 1) / ranks * size / (r * PRODUCT_S), ring=True)


@cache
def site_gain(r: float, ranks: int) -> float:
    """Return how many times as fast a site is with the loop, by the engine; 1 where its gate skips it."""
    step = site(ranks)
    costs = ring(step, r)
    looped = collective_einsum_overlap(step, costs)
    return simulate(step, costs, steps=1).finished(0) / simulate(looped, costs, steps=1).finished(0)


def deviation() -> float:
    """Return the largest relative difference between the engine and the paper's cost model over r and p."""
    return max(abs(site_gain(r, p) / looped_gain(r, p) - 1) for r in SWEPT_R for p in SWEPT_P)


def ideal_deviation() -> float:
    """Return the same for a loop that begins with its own block: C + G against C / p + (p - 1) times the longer of both."""
    return max(abs(site_gain(r, p) / _ideal(r, p) - 1) for r in (*SWEPT_R, 1.0, 2.0) for p in SWEPT_P)


def _ideal(r: float, p: int) -> float:
    return (1 + r) / (1 / p + (p - 1) * max(1 / p, r / (p - 1)))


def reached_at(wanted: float, ranks: int) -> float:
    """Return from which r on the engine's loop gains so much, between 0.02 and 0.9; nan where it never does."""
    return crossing(lambda r: site_gain(round(r, 9), ranks), wanted, 0.02, 0.9)


def modelled(r: float, ranks: int) -> float:
    """Return the gain by the cost model of the paper's gate."""
    return looped_gain(r, ranks)


def skipped_share(ranks: int = 8) -> float:
    """Return on what share of 400 sites a loop is used though the gate's inequality skips it, or the other way round.

    On an ideal ring the blocks take as long as the operation: m is 1, and the inequality is one of whole numbers.
    """
    wrong, step = 0, site(ranks)
    for product in range(1, 21):
        for operation in range(1, 21):
            used = collective_einsum_overlap(step, ring(step, operation / product), gate="published").applied
            skip = ranks * max(product, operation) + 2 * operation >= ranks * (product + operation)
            wrong += bool(used) == skip
    return wrong / 400


# ------------------------------------------------------------------------------------------------------------ async-TP
@cache
def async_tp(name: str, dtype: str = "bfloat16", gpus: int = 0) -> float:
    """Return tokens/s with asynchronous tensor parallelism over those without: every site PyTorch's pass takes, no gate."""
    usual, replicas, sequences, recompute = TORCHTITAN[name]
    replicas = gpus // 8 if gpus else replicas
    card = WorkloadSpec(
        name,
        gpus=gpus or usual,
        parallel=f"tp8,dp{replicas},fsdp,sp",
        micro_batches=1,
        micro_batch_size=sequences,
        seq=8192,
        dtype=dtype,
        recompute=recompute,
    )
    job = made(GeneratedJobSpec(card, "h100", compute={"memory": MEMORY}), fabric(f"dgx-h100:{replicas}"))
    after = collective_einsum_overlap(job.workload, job.costs, form="async-tp", gate="off")
    before_s, after_s = (
        simulate(each, job.costs, steps=3, interference=MEASURED).step_s for each in (job.workload, after)
    )
    return before_s / after_s
