"""CoCoNet: a sum and the computations behind it as one program: split, reordered onto slices, fused, or looped with the product.

Idea: What is computed of a sum may run on slices between its reduce-scatter and its all-gather: an optimizer on 1/p of the
    parameters with its states in slices, bias and dropout behind a tensor-parallel product. In one kernel with the operation,
    or beside the product that makes the terms, it costs next to nothing. Which is best is found by trying.
Cost: AR-C: t_AR + U. fuse(RS-C-AG): t_RS + t_AG + U / p. ol(MM, ...): MM / p + (p - 1) max(MM / p, shift) + C / p + t_AG.
Knobs: ``schedule`` (auto: the shortest by the costs, site by site); ``saved_us`` (0) that a computation is shorter inside the
    operation's kernel, a launch.
Holds: Every schedule is proven equal to the one before it; a state that is only read in slices is kept in slices; a collective
    runs in no kernel with another one.
Figure: Fused Adam on 128 GPUs 1.36 times faster with 2^28 elements, 1.37 with 2^30; 0.96 with 2^17.
Source: Jangda et al., ASPLOS 2022, arXiv 2105.05720; parasailteam/coconet.
Declines: Jobs in which nobody knows what is computed of any sum, and no product makes one; those that update slices already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import RewriteError, rewritten
from ringwright.ground.errors import WorkloadError
from ringwright.ground.knobs import Range
from ringwright.ground.units import PS
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Payload, Workload, asked_on
from ringwright.schedulers.decompose.coconet.products import overlapped, summed_products, worth
from ringwright.schedulers.decompose.coconet.schedules import (
    Readers,
    SumSite,
    Todo,
    in_one_kernel,
    kernels,
    optimizer_schedules,
    sliced_states,
    split_sum,
    sum_site,
    updates_apart,
)
from ringwright.schedulers.order import GRADIENTS

CHANGES = ("tasks", "edges", "payloads", "values", "applied")
Schedule = Literal["auto", "ar-c", "rs-c-ag", "fuse", "ol"]
IN_PRACTICE = {
    "fuse": "Megatron-LM --use-distributed-optimizer, DeepSpeed zero_optimization.stage=1 (in kernels of their own)",
    "ol": "PyTorch torch._inductor.config._micro_pipeline_tp = True, Transformer Engine ub_overlap_rs",
}
BESIDE = "a layer is updated as soon as its gradient is there: no clipping by the norm of all gradients"


def coconet(
    workload: Workload,
    costs: Costs,
    *,
    schedule: Schedule = "auto",
    saved_us: Annotated[float, Range(0, 1e6, "us")] = 0.0,
) -> Workload:
    """Return the workload with each sum and what is computed of it in the shortest of CoCoNet's schedules."""
    try:
        apart = updates_apart(workload)
        made = rewritten(workload, apart) if apart else workload
        products = summed_products(workload)
        sites, left = _sites(made, required=not products)
        chosen = _chosen(made, costs, sites, schedule, saved_us)
        sliced = [site for site in sites if chosen[site.total.name] != "ar-c"]
        if sliced:
            made = _sliced(made, sites, chosen, saved_us)
        else:
            made = kernels(workload, [name for site in sites for name in site.computations])
        if schedule != "auto":
            looped = products if schedule == "ol" else []
        else:
            looped = [(total, site) for total, site in products if worth(costs, total, site)]
        made = overlapped(made, looped) if looped else made
    except RewriteError as error:
        raise WorkloadError(
            f"coconet: {error.what}", where=f"{workload.name}, {error.where}", remedy="schedule=ar-c, or another policy"
        ) from None
    said = _said(chosen, left, beside=bool(apart and sliced)) if chosen else []
    told = [f"of {len(products)} sums of products ol(MM, RS), AG at {len(looped)}"] if products else []
    told += [f"ol(MM, RS) in practice: {IN_PRACTICE['ol']}"] if looped else []
    return made.saying("coconet", *said, *told).with_policy("coconet", boundary=made.policy.boundary or "barrier")


def _sliced(made: Workload, sites: Sequence[SumSite], chosen: Mapping[str, str], saved_us: float) -> Workload:
    """Return the workload with the computations on slices, and those that are to be in the kernels of their operations."""
    sliced = [site for site in sites if chosen[site.total.name] != "ar-c"]
    made = rewritten(made, [each for site in sliced for each in split_sum(site)])
    states = sliced_states(made, [name for site in sliced for name in site.states])
    looped: Todo = [("loop-scatter", site.product, {}) for site in sites if chosen[site.total.name] == "ol"]
    made = rewritten(made, [*states, *looped]) if states or looped else made
    made = kernels(made, [name for site in sites for name in site.computations])
    within = [f"{site.total.name}.scatter" for site in sliced if chosen[site.total.name] in ("fuse", "ol")]
    return in_one_kernel(made, within, saved_us) if within else made


def _sites(workload: Workload, *, required: bool) -> tuple[list[SumSite], int]:
    """Return the sums of whose results something known is computed, and how many sums of a step are none of them.

    WorkloadError where there is none and one is ``required``.
    """
    sites, refused = [], list[tuple[str, WorkloadError]]()
    taken, readers = set[str](), Readers(workload)
    for payload in workload.payloads:
        if payload.op != "all-reduce" or payload.joint or workload.mesh.extent(payload.axes) < 2:
            continue
        try:
            site = sum_site(workload, payload.name, readers)
        except WorkloadError as error:
            refused.append((payload.per, error))
            continue
        if not taken & set(site.computations) and not site.message:
            sites.append(site)
            taken |= set(site.computations)
    of_step = [error for per, error in refused if per == "step"]
    if sites or not required:
        return sites, len(of_step)
    raise _nothing_summed(workload, of_step, [error for _, error in refused])


def _nothing_summed(workload: Workload, of_step: list[WorkloadError], refused: list[WorkloadError]) -> WorkloadError:
    scattered = [each for each in workload.payloads if each.op == "reduce-scatter" and each.role in GRADIENTS]
    if of_step and not scattered:
        return of_step[0]
    if scattered:
        what = "coconet: gradients are scattered and slices updated already, no all-reduce of them is left"
        once = all(each.per == "step" for each in scattered)
        remedy = "dear, which moves its gathers into the next step" if once else "--parallel without fsdp"
        return WorkloadError(what, where=workload.name, remedy=remedy)
    if refused:
        return refused[0]
    return WorkloadError(
        "coconet: there is no all-reduce in it", where=workload.name, remedy="a training step with data parallelism"
    )


def _chosen(
    workload: Workload, costs: Costs, sites: Sequence[SumSite], schedule: Schedule, saved_us: float
) -> dict[str, str]:
    """Return the schedule of each site: as asked for, or the shortest by its parts' times alone."""
    chosen: dict[str, str] = {}
    times: dict[tuple[object, ...], str] = {}
    for site in sites:
        if schedule != "auto":
            chosen[site.total.name] = "fuse" if schedule == "ol" and not site.product else schedule
            continue
        total = site.total
        took = sum(workload.task[name].seconds for name in site.computations)
        product_s = workload.task[site.product].seconds if site.product else 0.0
        ranks = workload.group(total.of, total.axes)
        alike = total.size_bytes, total.role, ranks, took, product_s
        if alike not in times:
            times[alike] = _shortest(costs, total, ranks, (took, product_s), saved_us)
        chosen[total.name] = times[alike]
    return chosen


def _shortest(
    costs: Costs, total: Payload, ranks: tuple[int, ...], computed_s: tuple[float, float], saved_us: float
) -> str:
    """Return the schedule of a sum that takes least: ``computed_s`` what is computed of it, and the product before it."""
    p, (took, product_s) = len(ranks), computed_s

    def op_s(op: str) -> float:
        return seconds(costs, asked_on(op, total.network), total.size_bytes, ranks, total.role)

    gathered_s = op_s("all-gather") + took / p
    times = {
        "ar-c": product_s + op_s("all-reduce") + took,
        "fuse": product_s + op_s("reduce-scatter") + gathered_s - saved_us * 1e-6,
    }
    if product_s:
        shift_s = seconds(costs, asked_on("shift", total.network), total.size_bytes // p, ranks, total.role)
        times["ol"] = product_s / p + (p - 1) * max(product_s / p, shift_s) + gathered_s
    return min(times, key=times.__getitem__)


def _said(chosen: Mapping[str, str], left: int, *, beside: bool) -> Sequence[str]:
    names = {"ar-c": "AR-C", "rs-c-ag": "RS-C-AG", "fuse": "fuse(RS-C-AG)", "ol": "ol(MM, fuse(RS-C-AG))"}
    counted = Counter(chosen.values())
    told = ", ".join(f"{names[each]} at {count}" for each, count in counted.items())
    return [
        f"of {len(chosen)} sums {told}",
        *([f"{left} sums of a step stay: nobody knows what is computed of each of their elements"] if left else []),
        *([BESIDE] if beside else []),
        *(f"{names[each]} in practice: {IN_PRACTICE[each]}" for each in counted if each in IN_PRACTICE),
    ]


def step_s(workload: Workload, costs: Costs) -> float:
    """Return the seconds of one step alone, to the end of its last operation."""
    return float(simulate(workload, costs, steps=1).times.end.max()) / PS


def autotuned(workload: Workload, costs: Costs, at: str, *, saved_us: float = 0.0) -> tuple[str, dict[str, float]]:
    """Return the fastest of the candidates for a sum and the update behind it, and the seconds of each, simulated.

    The candidates are AR-C, RS-C-AG and fuse(RS-C-AG), in this order; of equals the last, which has the fewest kernels.
    """
    times = {name: step_s(made, costs) for name, made in optimizer_schedules(workload, at, saved_us=saved_us)}
    best = min(times.values())
    return [name for name, took in times.items() if took <= best * (1 + 1e-12)][-1], times
