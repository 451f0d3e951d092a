"""T3's figures: sub-layers of two models with three arbitrations, compute units shared out, what passes the memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from ringwright.engines.job.run import simulate
from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Mesh
from ringwright.schedulers.decompose.t3 import t3
from ringwright.schedulers.decompose.t3.stages import (
    Arbitration,
    RingGpu,
    SummedProduct,
    gather_s,
    product_s,
    scatter_s,
    shared_units_s,
    touched,
    triggered_s,
)

GPU = (
    RingGpu()
)  # 80 CUs at 1.4 GHz, 1 TB/s, ring of 150 GB/s, 500 ns: published; tensor cores of a V100, 85 % of them: assumed
# model -> (hidden, tokens of a step): dimensions of the models as they are known, batches assumed
MODELS = {"Mega-GPT-2": (3072, 16 * 1024), "T-NLG": (4256, 8 * 1024)}
LARGER = {"GPT-3": (12288, 2 * 1024), "PaLM": (18432, 2 * 1024), "MT-NLG": (20480, 2 * 1024)}
RANKS, MANY = (8, 16), 32
# Sub-layers whose results are summed up: width of what their product sums over, in hidden widths of all ranks.
SUBLAYERS = {"OP": 1, "FC-2": 4, "FC-1": 4, "IP": 3}
SLOWER = {8: 1.41, 16: 1.07, 0: 1.0}  # all-reduces on so many CUs, as published


def sublayers(*, larger: bool = False) -> Iterator[SummedProduct]:
    """Yield the products of all sub-layers, models and numbers of ranks."""
    for hidden, tokens in (LARGER if larger else MODELS).values():
        for ranks in (MANY,) if larger else RANKS:
            for width in SUBLAYERS.values():
                yield SummedProduct(tokens, hidden, width * hidden // ranks, ranks)


def gain(arbitration: Arbitration, what: str = "mean", *, larger: bool = False) -> float:
    """Return how many times as fast a sub-layer is, the geometric ``mean`` over all or the ``most``."""

    def one(product: SummedProduct) -> float:
        after_s = triggered_s(product, GPU, arbitration) + gather_s(product, GPU)
        return _sequential_s(product) / after_s

    return _over(sublayers(larger=larger), one, what)


def shared_units(units: int) -> float:
    """Return the geometric mean gain of a product beside an all-reduce that has ``units`` CUs (0: none, and is no slower)."""
    return _over(
        sublayers(), lambda each: _sequential_s(each) / shared_units_s(each, GPU, units, SLOWER[units]), "mean"
    )


def fewer_reads(*, triggered: bool = True) -> float:
    """Return how many times fewer chunks the reduce-scatter reads, geometric mean over numbers of ranks."""
    return _mean([touched(p, triggered=False).read / touched(p, triggered=triggered).read for p in RANKS])


def fewer_writes(*, triggered: bool = True) -> float:
    """Return by which share fewer chunks are written, geometric mean of what is left over numbers of ranks."""
    return 1 - _mean([touched(p, triggered=triggered).written / touched(p, triggered=False).written for p in RANKS])


# ----------------------------------------------------------------------------------------------------------- job graphs
def site_gain(r: float, ranks: int) -> float:
    """Return how many times as fast a product with a scatter of ``r`` times its length is in a job, by the engine of jobs."""
    graph = Build(Mesh((("tp", ranks),)), d=2 * ranks, h=ranks, f=4)
    x, w = graph.input("x", "d h", sliced("tp", "h")), graph.input("w", "h f", sliced("tp", "h"))
    product = graph.task("product", "einsum", [x, w], "d f", partial("tp"), seconds=1.0)
    graph.task(
        "after", "", [graph.send("sum", "RS", product, "tp", sliced("tp", "d"))], "d f", sliced("tp", "d"), seconds=0.0
    )
    step = graph.step()
    costs = LinkCosts((ranks - 1) / ranks * step.payload["sum"].size_bytes / r, ring=True)
    return simulate(step, costs, steps=1).finished(0) / simulate(t3(step, costs), costs, steps=1).finished(0)


def _sequential_s(product: SummedProduct) -> float:
    return product_s(product, GPU) + scatter_s(product, GPU) + gather_s(product, GPU)


def _over(products: Iterator[SummedProduct], one: Callable[[SummedProduct], float], what: str) -> float:
    gains = [one(each) for each in products]
    return max(gains) if what == "most" else _mean(gains)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.prod(listed) ** (1 / len(listed))
