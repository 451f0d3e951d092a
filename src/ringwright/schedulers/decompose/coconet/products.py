"""CoCoNet behind a model's tensor-parallel products: ol(MM, RS), AG in place of MM-AR, block by block round the ring.

What is computed of the sum stays behind the gather: the residual stream is needed whole, and of it and what is normed of it two
gathers would be sent in place of one. With sequence parallelism it is on slices already, and no sum is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringwright.graph.algebra import rewritten
from ringwright.model.stages import Costs, seconds
from ringwright.model.values import SLICED
from ringwright.model.workload import Payload, Workload, asked_on
from ringwright.schedulers.decompose._sites import ProductSite, sites

Dims = Mapping[str, str]  # sum -> the dimension of its blocks


def summed_products(workload: Workload) -> list[tuple[Payload, ProductSite]]:
    """Return the sums that a model's product makes block by block along a dimension, and where, if they were split along it."""
    dims = _dims(workload)
    sums = {name: workload.payload[name] for name in dims}
    split = rewritten(workload, _split(dims)) if dims else workload
    return [
        (sums[site.payload.name.removesuffix(".scatter")], site)
        for site in (sites(split)[0] if dims else [])
        if site.payload.name.removesuffix(".scatter") in sums
    ]


def worth(costs: Costs, total: Payload, site: ProductSite) -> bool:
    """Return whether product, blocks and gather take less than product and sum: MM / p + (p - 1) max(MM / p, shift) + t_AG."""
    many, more_s = len(site.ranks), site.work.cuts.get(site.dim, 0.0)

    def op_s(op: str, size: int) -> float:
        return seconds(costs, asked_on(op, total.network), size, site.ranks, total.role)

    block_s = site.seconds / many + more_s
    shift_s = op_s("shift", -(-total.size_bytes // many))
    looped_s = site.seconds / many + (many - 1) * max(block_s, shift_s) + op_s("all-gather", total.size_bytes)
    return looped_s < site.seconds + op_s("all-reduce", total.size_bytes)


def overlapped(workload: Workload, chosen: Sequence[tuple[Payload, ProductSite]]) -> Workload:
    """Return the workload with these products in loops beside their scatters, and gathers behind them."""
    dims = {total.name: site.dim for total, site in chosen}
    apart = dict.fromkeys(site.task.name for _, site in chosen if site.part is not None)
    made = rewritten(workload, [*_split(dims), *(("open", name, {}) for name in apart)])
    names = {f"{name}.scatter" for name in dims}
    there = [site for site in sites(made)[0] if site.payload.name in names]
    return rewritten(made, [("loop-scatter", site.task.name, {}) for site in there])


def _split(dims: Dims) -> list[tuple[str, str, Mapping[str, str]]]:
    return [("split-all-reduce", name, {"dim": dim}) for name, dim in dims.items()]


def _is_sum(payload: Payload) -> bool:
    return payload.op == "all-reduce" and len(payload.axes) == 1 and not payload.joint and bool(payload.result)


def _dims(workload: Workload) -> Dims:
    """Return along which dimension each sum of a model's product could be scattered: one that its last part may be cut along."""
    writer = {name: task for task in workload.tasks for name in task.writes}
    dims: dict[str, str] = {}
    for payload in workload.payloads:
        task = writer.get(payload.source)
        if task is None or not _is_sum(payload):
            continue
        work = task.work
        last = work.parts[-1].work if work and work.parts else work
        value, many = workload.value[payload.source], workload.mesh.extent(payload.axes)
        if work is None or last is None or work.meaning or not last.products or many < 2:
            continue
        fits = [dim for dim, size in value.dims if dim in last.cuts and not value.axes(SLICED, dim) and not size % many]
        dims |= {payload.name: fits[0]} if fits else {}
    return dims
