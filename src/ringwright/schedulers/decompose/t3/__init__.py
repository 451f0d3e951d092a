"""T3: the stores of a product start the copies of the reduce-scatter behind it, tile by tile.

Idea: A product writes its result in waves of tiles, and slicing it by k makes no fewer of them. A tracker at the memory counts
    what is added to each tile and starts its copy when all has come: the product's kernel is not changed, sums are made at the
    memory, no compute unit sends. The product makes first what travels furthest; all-gathers stay where they are.
Cost: G + RS + AG becomes max(G, RS) + AG at best; G (1 + c) where copies take memory from the product's stages; with the product
    first at the memory controller, RS is longer instead by the share of time in which the product asks for it.
Knobs: ``tiles`` (1) of each rank's block, each of which starts its copy by itself; ``gpu`` (h100): a tile is stored when the
    wave of the kernel's tiles ends in which it ends, as they lie on that GPU; none: when its share of the product is done.
Holds: A copy starts once, behind the last update of its tile; the same sums to the bit; the product loses nothing by its tiles,
    a copy more costs what costs say of so small a one.
Figure: Sub-layers 1.20 times as fast (geometric mean), 1.30 with arbitration, 1.35 at best; training steps up to 1.12 times.
Source: Pati et al., ASPLOS 2024, arXiv 2401.16677.
Declines: Jobs without a product whose terms a reduce-scatter adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ringwright.graph.algebra import RewriteError, rewritten
from ringwright.ground.errors import WorkloadError
from ringwright.ground.knobs import Range
from ringwright.model.stages import Costs
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose._sites import ProductSite, sites

NEEDS = ("workload.tensor-parallel",)
CHANGES = ("tasks", "edges", "payloads", "values", "applied")
HARDWARE = "memory controllers that count stores and start copies"
IN_PRACTICE = (
    "hardware that does not exist; nearest to it: flux.GemmRS (FLUX) or FlashOverlap on NVIDIA GPUs, whose kernels set "
    "flags by tile and whose copies wait for them"
)


def t3(
    workload: Workload,
    costs: Costs,
    *,
    tiles: Annotated[int, Range(1, 64)] = 1,
    gpu: Literal["none", "h100", "h800", "h200"] = "h100",
) -> Workload:
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
        looped = rewritten(opened, [_looped(opened, site, tiles, gpu) for site in now])
    except RewriteError as error:
        raise WorkloadError(f"t3: {error}", where=error.at, remedy=error.remedy or "tiles=1") from None
    uncut = sum(site.tiles(opened, tiles) < tiles for site in now)
    return looped.saying("t3", *_said(workload, len(chosen), uncut, tiles))


def _to_open(chosen: list[ProductSite]) -> list[str]:
    return list(dict.fromkeys(site.task.name for site in chosen if site.part is not None))


def _looped(workload: Workload, site: ProductSite, tiles: int, gpu: str) -> tuple[str, str, Mapping[str, Any]]:
    knobs: dict[str, object] = {"epsilon": 1.0, "op": "copy"}
    if site.tiles(workload, tiles) > 1:
        knobs |= {"tiles": tiles, "waves": site.waves(gpu)}
    return "loop-scatter", site.task.name, knobs


def _said(workload: Workload, chosen: int, uncut: int, tiles: int) -> list[str]:
    left = sum(payload.op == "reduce-scatter" for payload in workload.payloads) - chosen
    said = [f"{chosen} scatters begin as their products' tiles are stored, by copy engines"]
    said += [f"{uncut} of them in whole blocks: {tiles} tiles of a rank's rows are not equal"] if uncut else []
    said += [f"{left} scatters have no product before them"] if left else []
    return [*said, f"in practice: {IN_PRACTICE}"]
