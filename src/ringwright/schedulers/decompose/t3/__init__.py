"""T3: the stores of a product start the copies of the reduce-scatter behind it, tile by tile.

Idea: A product writes its result in waves of tiles, and slicing it by k makes no fewer of them. A tracker at the memory counts
    what is added to each tile and starts its copy when all has come: the product's kernel is not changed, sums are made at the
    memory, no compute unit sends. The product makes first what travels furthest; all-gathers stay where they are.
Cost: G + RS + AG becomes max(G, RS) + AG at best; G (1 + c) where copies take memory from the product's stages; with the product
    first at the memory controller, RS is longer instead by the share of time in which the product asks for it.
Knobs: ``pieces`` (1) of each rank's block, each of which starts its copies by itself: hardware does so tile by tile, in a job a
    piece is as fine as it goes, and costs what its work says that a piece more costs.
Holds: A copy starts once, behind the last update of its tile; the same sums to the bit; the product loses nothing by its tiles.
Figure: Sub-layers 1.20 times as fast (geometric mean), 1.30 with arbitration, 1.35 at best; training steps up to 1.12 times.
Source: Pati et al., ASPLOS 2024, arXiv 2401.16677.
Declines: Jobs without a product whose terms a reduce-scatter adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ringwright.algebra import RewriteError, rewritten
from ringwright.costs.stages import Costs
from ringwright.errors import WorkloadError
from ringwright.knobs import Range
from ringwright.schedulers.decompose._sites import ProductSite, sites
from ringwright.workload import Workload

NEEDS = ("workload.tensor-parallel",)
CHANGES = ("tasks", "edges", "payloads", "values", "applied")
HARDWARE = "memory controllers that count stores and start copies"
IN_PRACTICE = (
    "hardware that does not exist; nearest to it: flux.GemmRS (FLUX) or FlashOverlap on NVIDIA GPUs, whose kernels set "
    "flags by tile and whose copies wait for them"
)


def t3(workload: Workload, costs: Costs, *, pieces: Annotated[int, Range(1, 64)] = 1) -> Workload:
    """Return the workload in which every product before a reduce-scatter sends its tiles as it stores them."""
    there, none = sites(workload)
    chosen = [site for site in there if site.side == "scatter"]
    if not chosen:
        told = "; ".join(f"{count}: {why}" for why, count in none.items()) or "it has none"
        raise WorkloadError(
            f"t3: no product whose terms a reduce-scatter adds up ({told})",
            where=workload.name,
            remedy="--parallel tp8,sp: with sequence parallelism tensor parallel layers scatter",
        )
    try:
        opened = rewritten(workload, [("open", name, {}) for name in _to_open(chosen)])
        names = {site.payload.name for site in chosen}
        now = [site for site in sites(opened)[0] if site.payload.name in names]
        cut = rewritten(opened, [_cut(site, pieces) for site in now if _parts(opened, site, pieces) > 1])
        whole = {site.payload.name for site in there} - names
        fine = [site for site in sites(cut)[0] if site.side == "scatter" and site.payload.name not in whole]
        looped = rewritten(cut, [("loop-scatter", site.task.name, {"epsilon": 1.0, "op": "copy"}) for site in fine])
    except RewriteError as error:
        raise WorkloadError(f"t3: {error}", where=error.at, remedy=error.remedy or "pieces=1") from None
    return looped.saying("t3", *_said(workload, chosen, now, opened, pieces))


def _to_open(chosen: list[ProductSite]) -> list[str]:
    return list(dict.fromkeys(site.task.name for site in chosen if site.part is not None))


def _parts(workload: Workload, site: ProductSite, pieces: int) -> int:
    """Return in how many pieces each rank's block of rows can be cut: as many as asked for, or one."""
    rows = dict(workload.value[site.payload.source].dims)[site.dim]
    return pieces if rows % (pieces * len(site.ranks)) == 0 else 1


def _cut(site: ProductSite, pieces: int) -> tuple[str, str, Mapping[str, Any]]:
    return "cut", site.task.name, {"dim": site.dim, "parts": pieces, "through": site.payload.name}


def _said(
    workload: Workload, chosen: list[ProductSite], now: list[ProductSite], opened: Workload, pieces: int
) -> list[str]:
    uncut = sum(_parts(opened, site, pieces) < 2 for site in now) if pieces > 1 else 0
    left = sum(payload.op == "reduce-scatter" for payload in workload.payloads) - len(chosen)
    said = [f"{len(chosen)} scatters begin as their products' tiles are stored, by copy engines"]
    said += [f"{uncut} of them in whole blocks: {pieces} pieces of a rank's rows are not equal"] if uncut else []
    said += [f"{left} scatters have no product before them"] if left else []
    return [*said, f"in practice: {IN_PRACTICE}"]
