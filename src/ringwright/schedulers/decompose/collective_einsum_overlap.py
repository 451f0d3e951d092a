"""Looped CollectiveEinsum: a gather before a product, or a scatter behind one, becomes a loop of blocks.

Idea: A product that waits for an all-gather works on its own block at once and on the others as they arrive; one whose result is
    scattered sends each block on while it works on the next. What depended on each other overlaps. A site is looped where
    a gate says that it pays.
Cost: G + C becomes max(e C, m G) + 2 m G / p: G the operation, C the product, m what the blocks take by themselves over G, e what
    a product in p pieces takes over C. At r = G / C, m = e = 1 it gains (1 + r) / (max(1, r) + 2 r / p), 2 / (1 + 2 / p) at most.
Knobs: ``form`` (windowed): windowed sends blocks round the ring; async-tp copies them straight between ranks, skips rows of
    fewer than 1024 numbers; userbuffers gathers round the ring, scatters 4 pieces and leaves backward scatters to the
    weights' gradients; tile is one kernel that waits for blocks, which loses nothing. ``gate`` (efficiency): published is the
    paper's code, which takes e as 1; off loops everything. ``bidirectional`` (false): both ways round, timed as one after
    the other. ``tiles`` (1) of each block, each sent and worked on by itself: sooner, in smaller products and messages, or, in
    one kernel, as its waves of tiles end. ``threshold_mib`` (0; XLA's own default is 256): the least gathered or scattered
    value. ``gpu`` (h100): e from 16-bit products in pieces as measured there, and a kernel's waves; none: e from what the work
    says that a piece more costs, no waves.
Holds: The same outputs to the bit; the same bytes; a site is looped exactly where its gate does not skip it.
Figure: Steps of 1.14 to 1.38 times the speed on TPU v4, models of 10 B to 1 T parameters; 72 % of the peak on 1,024 chips.
Source: Wang et al., ASPLOS 2023, doi 10.1145/3567955.3567959; openxla/xla, dot_handler.cc; pytorch/pytorch, micro_pipeline_tp.py.
Declines: Jobs without a gather before, or a scatter behind a product that can be worked on block by block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from ringwright.costs.contention.multiprocessors import multiprocessors
from ringwright.costs.contention.pieces import ALONG, efficiency
from ringwright.costs.contention.products import Product
from ringwright.costs.ring_overlap import looped_time
from ringwright.graph.algebra import RewriteError, rewritten
from ringwright.ground.errors import WorkloadError
from ringwright.ground.knobs import Range
from ringwright.model.stages import Costs
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose._sites import ProductSite, sites

NEEDS = ("workload.tensor-parallel",)
CHANGES = ("tasks", "edges", "payloads", "values", "applied")
SLUG = "collective-einsum-overlap"
Form = Literal["windowed", "async-tp", "userbuffers", "tile"]
Gate = Literal["efficiency", "published", "off"]
SHORTEST_MS = 1e-5  # an operation that takes no longer is not asked about: it is looped
ROUNDING = 1e-12
NARROWEST = 1024  # numbers in a row, below which PyTorch's pass leaves an operation alone
PIPELINED = 4  # pieces of Transformer Engine's scatters
DIRECT = ("async-tp", "tile")
IN_PRACTICE: Mapping[str, str] = {
    "windowed": "XLA: --xla_gpu_threshold_for_windowed_einsum_mib=0 --xla_gpu_multi_streamed_windowed_einsum=true",
    "async-tp": "PyTorch: torch._inductor.config._micro_pipeline_tp = True, enable_symm_mem_for_group(group) of "
    "torch.distributed._symmetric_memory, and torch.compile",
    "userbuffers": "Megatron-LM: --tp-comm-overlap (Transformer Engine: ub_overlap_ag, ub_overlap_rs, ub_bulk_wgrad)",
    "tile": "FLUX: flux.AGKernel and flux.GemmRS, or TileLink's ag_gemm and gemm_rs, in place of operation and product",
}


@dataclass(frozen=True)
class JudgedSite:
    """A site with its times: the product, the operation, m and e; ``skip``: why it stays as it is, "" where it is looped.

    Each block goes in ``tiles``; of one kernel's ``waves`` that a block takes, those of one end together (0: not known).
    """

    site: ProductSite
    operation_s: float
    m: float
    e: float
    skip: str = ""
    tiles: int = 1
    waves: int = 0


def collective_einsum_overlap(
    workload: Workload,
    costs: Costs,
    *,
    form: Form = "windowed",
    gate: Gate = "efficiency",
    bidirectional: bool = False,
    tiles: Annotated[int, Range(1, 64)] = 1,
    threshold_mib: Annotated[float, Range(0, 1 << 20)] = 0.0,
    gpu: Literal["none", "h100", "h800", "h200"] = "h100",
) -> Workload:
    """Return the workload with a loop at every site where the gate does not skip it."""
    there, none = sites(workload)
    if not there:
        told = "; ".join(f"{count}: {why}" for why, count in none.items()) or "it has none"
        raise WorkloadError(
            f"{SLUG}: no all-gather before a product and no reduce-scatter behind one ({told})",
            where=workload.name,
            remedy="--parallel tp8,sp: with sequence parallelism tensor parallel layers gather and scatter",
        )
    judged = [_judged(site, costs, form, gate, threshold_mib, (site.tiles(workload, tiles), gpu)) for site in there]
    chosen = _once([each for each in judged if not each.skip])
    both = bidirectional and form not in DIRECT
    shut = dict.fromkeys(each.site.task.name for each in chosen if each.site.part is not None)
    try:
        opened = rewritten(workload, [("open", name, {}) for name in shut]) if shut else workload
        now = {site.payload.name: site for site in (sites(opened)[0] if shut else there)}
        looped = rewritten(opened, [_rule(each, now[each.site.payload.name], form, both=both) for each in chosen])
    except RewriteError as error:
        raise WorkloadError(f"{SLUG}: {error}", where=error.at, remedy=error.remedy or "another form") from None
    return looped.saying(SLUG, *_said(judged, chosen, none, form, gpu))


def is_skipped(product_s: float, operation_s: float, m: float, ranks: int, e: float = 1.0) -> bool:
    """Return whether a site is not worth a loop: the loop would take as long as operation and product one after the other.

    Seconds; ``m`` as in the module's cost. With ``e`` = 1 it is the gate of the paper's code to the letter; what is equal but
    for rounding is equal.
    """
    looped_s = looped_time(product_s, operation_s, ranks, m, e)
    return operation_s * 1e3 > SHORTEST_MS and looped_s >= (operation_s + product_s) * (1 - ROUNDING)


def saved_s(workload: Workload, costs: Costs) -> dict[str, float]:
    """Return by operation the seconds that a loop at its site saves where blocks and pieces cost nothing more (m = e = 1)."""
    every = [JudgedSite(site, site.operation_s(costs), 1.0, 1.0) for site in sites(workload)[0]]
    return {each.site.payload.name: _saved_s(each.site, each.operation_s) for each in _once(every)}


def _saved_s(site: ProductSite, operation_s: float) -> float:
    return max(0.0, operation_s + site.seconds - looped_time(site.seconds, operation_s, len(site.ranks)))


def looped_gain(r: float, ranks: int, m: float = 1.0, e: float = 1.0) -> float:
    """Return how many times as fast a site is with a loop, by the cost model; ``r``: operation over product."""
    return (1 + r) / looped_time(1.0, r, ranks, m, e)


def _judged(
    site: ProductSite, costs: Costs, form: Form, gate: Gate, threshold_mib: float, grain: tuple[int, str]
) -> JudgedSite:
    (tiles, gpu), operation_s = grain, site.operation_s(costs)
    blocks_s = site.blocks_s(costs, _by(form), direct=form in DIRECT, tiles=tiles)
    m = blocks_s / operation_s if operation_s else 1.0
    e = 1.0 if form == "tile" else _pieces(site, len(site.ranks) * tiles, gpu)
    waves = site.waves(gpu) if form == "tile" and tiles > 1 else 0
    judged = JudgedSite(site, operation_s, m, e, tiles=tiles, waves=waves)
    return replace(judged, skip=_why_not(judged, form, gate, threshold_mib))


def _by(form: Form) -> str:
    """Return the operation that brings a block: the library's, or that of copy engines."""
    return "copy" if form in DIRECT else "shift"


def _why_not(judged: JudgedSite, form: Form, gate: Gate, threshold_mib: float) -> str:
    site = judged.site
    if site.payload.size_bytes < threshold_mib * (1 << 20):
        return f"smaller than {threshold_mib:g} MiB"
    if site.others and form == "windowed":
        return "another task reads the same gathered value"
    if form == "userbuffers" and site.side == "scatter" and site.task.kind not in ("F", "C"):
        return "left to run beside the weights' gradients"
    if form == "async-tp" and _width(site) < NARROWEST:
        return f"rows of fewer than {NARROWEST} numbers"
    weighed = {"published": 1.0, "efficiency": judged.e}.get(gate)
    sent = len(site.ranks) * min(judged.tiles, judged.waves or judged.tiles)
    if weighed is not None and is_skipped(site.seconds, judged.operation_s, judged.m, sent, weighed):
        return "a loop would take as long"
    return ""


def _width(site: ProductSite) -> int:
    """Return the numbers in a row of a rank's shard."""
    products = site.work.products
    if not products:
        return NARROWEST
    return products[0].k if site.side == "gather" else products[-1].n


def _pieces(site: ProductSite, many: int, gpu: str) -> float:
    """Return how many times as long ``many`` pieces take as the product."""
    known = [each for each in site.work.products if each.cut in ALONG]
    if gpu == "none" or not known:
        more_s = (many - 1) * site.work.cuts.get(site.dim, 0.0)
        return 1.0 + more_s / site.seconds if site.seconds else 1.0
    on = multiprocessors(gpu)
    whole = cut = 0.0
    for each in known:
        share = efficiency(Product(each.m, each.n, each.k), each.cut, min(many, getattr(each, each.cut)), on)  # type: ignore[arg-type]
        weight = each.m * each.n * each.k * each.times
        whole, cut = whole + weight, cut + weight / share
    return cut / whole


def _once(chosen: list[JudgedSite]) -> list[JudgedSite]:
    """Return the sites of which each product is looped once: by its gather, where a single product has both."""
    taken: dict[tuple[str, int | None], JudgedSite] = {}
    for each in sorted(chosen, key=lambda each: each.site.side != "gather"):
        taken.setdefault((each.site.task.name, each.site.part), each)
    kept = {id(each) for each in taken.values()}
    return [each for each in chosen if id(each) in kept]


def _rule(judged: JudgedSite, site: ProductSite, form: Form, *, both: bool) -> tuple[str, str, Mapping[str, Any]]:
    """Return the rule for a site, as it is once its task is open."""
    if form == "userbuffers" and site.side == "scatter":
        return "cut", site.task.name, {"dim": site.dim, "parts": PIPELINED, "through": site.payload.name}
    knobs: dict[str, object] = {"epsilon": round(judged.e, 6)}
    if form in DIRECT:
        knobs |= {"direct": True, "op": _by(form)}
    if both and len(site.ranks) % 2 == 0:
        knobs["bidirectional"] = True
    if judged.tiles > 1:
        knobs |= {"tiles": judged.tiles, "waves": judged.waves}
    if site.others:
        knobs["kept"] = True
    return f"loop-{site.side}", site.task.name, knobs


def _said(judged: list[JudgedSite], chosen: list[JudgedSite], none: Counter[str], form: Form, gpu: str) -> list[str]:
    sides = Counter(each.site.side for each in chosen)
    skipped = Counter(each.skip for each in judged if each.skip)
    skipped["its product is looped already"] = len(judged) - sum(skipped.values()) - len(chosen)
    said = [
        f"{sides['gather']} gathers and {sides['scatter']} scatters beside their products, of {len(judged)} that could be"
    ]
    said += [f"{count} are left: {why}" for why, count in skipped.items() if count]
    said += [f"{count} gathers and scatters are no site: {why}" for why, count in none.items()]
    if chosen:
        worst = max(each.e for each in chosen)
        ground = (
            f"pieces of products as measured on {gpu}"
            if gpu != "none"
            else "what the work says that a piece more costs"
        )
        said.append(f"products in pieces take up to {worst:.3f} times as long ({ground})")
    return [*said, f"in practice: {IN_PRACTICE[form]}"]
