"""Centauri's figures: the pipeline of chunks, what levels send, and steps of a 13B model on 4 nodes of 8."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from ringwright.costs.nodes import NodeCosts
from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import RULES
from ringwright.graph.algebra.account import wire_bytes
from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.ground.units import PS
from ringwright.jobs import model_job
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.values import Work
from ringwright.model.workload import Mesh, Workload
from ringwright.schedulers.decompose.centauri import centauri

RANKS, PRODUCT_S = 4, 8.0
ROWS, COLUMNS = 64, 4
PER_NODE, NODES, NIC, NVLINK = 8, 4, 25e9, 300e9  # 200 Gb/s a node, NVLink of an A100
OFF: Mapping[str, Any] = {
    "substitution": False,
    "groups": False,
    "chunks": 1,
    "layers": False,
    "accumulate": False,
    "ahead": 0,
}
SWITCHED: tuple[Mapping[str, Any], ...] = (
    {"substitution": True},
    {"groups": True},
    {"chunks": 8},
    {"layers": True},
    {"accumulate": True},
    {"ahead": 4},
)


# --------------------------------------------------------------------------------------------------- chunks of one product
def product(more_s: float = 0.0) -> Workload:
    """Return a product whose terms are summed over four ranks: 8 s of work, each part of it ``more_s`` longer."""
    graph = Build(Mesh((("a", RANKS),)), b=ROWS, h=RANKS, f=COLUMNS)
    x, w = graph.input("x", "b h", sliced("a", "h")), graph.input("w", "h f", sliced("a", "h"))
    y = graph.task("y", "einsum", [x, w], "b f", partial("a"), seconds=PRODUCT_S, cost=Work(cuts={"b": more_s}))
    total = graph.send("sum", "AR", y, "a")
    graph.task("end", "", [total], "b f", seconds=0.0)
    return graph.step()


def link(all_reduce_s: float, start_s: float) -> LinkCosts:
    """Return a link on which the whole sum takes ``all_reduce_s`` and each operation ``start_s`` to start."""
    step = product()
    volume = 2 * (RANKS - 1) / RANKS * step.payload["sum"].size_bytes
    return LinkCosts(volume / all_reduce_s, latency_s=start_s / (2 * (RANKS - 1)), ring=True)


def pipelined_s(all_reduce_s: float, start_s: float = 0.0, more_s: float = 0.0) -> float:
    """Return the seconds of the product and its sum as Centauri cuts them."""
    costs = link(all_reduce_s, start_s)
    run = simulate(centauri(product(more_s), costs, least_kib=0, substitution=False), costs, steps=1)
    return run.finished(0) / PS


def chunks(all_reduce_s: float, start_s: float = 0.0) -> float:
    """Return in how many chunks the product and its sum are cut."""
    made = centauri(product(), link(all_reduce_s, start_s), least_kib=0, substitution=False)
    return float(max((each.settings["parts"] for each in made.applied if each.rule == "cut"), default=1))


# ----------------------------------------------------------------------------------------------------------------- levels
def wire_share(level: str) -> float:
    """Return the bytes that a rank sends inside its node or across nodes, as a share of an all-reduce's, by levels."""
    graph = Build(Mesh((("all", NODES * PER_NODE),)), b=NODES * PER_NODE * 4, h=2)
    x = graph.task("x", "", [graph.input("in", "b h", partial("all"))], "b h", partial("all"))
    graph.task("end", "", [graph.send("sum", "AR", x, "all")], "b h")
    whole = graph.step()
    made = RULES["split-axis"](whole, "all", inside=PER_NODE)
    made = RULES["hierarchical-all-reduce"](made, "sum", inner="all-inside")
    sent = (wire_bytes(each, made.mesh.extent(each.axes)) for each in made.payloads if each.axes == (f"all-{level}",))
    return sum(sent) / whole.payload["sum"].size_bytes


# ------------------------------------------------------------------------------------------------------------- whole steps
def costs() -> NodeCosts:
    """Return 4 nodes of 8 behind a NIC of 200 Gb/s each."""
    return NodeCosts(NIC, PER_NODE, NVLINK)


@cache
def step(parallel: str, micro_batches: int, *, layers: int = 0) -> Workload:
    """Return a training step of GPT-3 13B on 32 GPUs, of all its layers or a few."""
    dims = {"layers": layers} if layers else {}
    asked = WorkloadSpec("gpt3-13b", NODES * PER_NODE, parallel, micro_batches, dims=dims)
    return model_job.workload(model_job.GeneratedJobSpec(asked, "a100"))


@cache
def step_s(parallel: str, micro_batches: int, layers: int, on: int) -> float:
    """Return the seconds of a step with the first ``on`` of axes and tiers switched on; below 0: as it is."""
    before = step(parallel, micro_batches, layers=layers)
    chosen = {**OFF} | {key: each for part in SWITCHED[:on] for key, each in part.items()}
    made = before if on < 0 else centauri(before, costs(), **chosen)
    return simulate(made, costs(), steps=3).step_s


def times_shorter(parallel: str, micro_batches: int = 1) -> float:
    """Return how many times shorter the step is than with whole operations beside it."""
    return step_s(parallel, micro_batches, 0, -1) / step_s(parallel, micro_batches, 0, len(SWITCHED))


def gain_over_none(parallel: str, micro_batches: int = 1) -> float:
    """Return how many times shorter the step is than with nothing beside it: all tasks and operations one after another."""
    before = step(parallel, micro_batches)
    times = {"micro-batch": micro_batches, "step": 1}
    work = sum(task.seconds * times[task.per] for task in before.tasks)
    sent = sum(
        stage.wire_s * times[each.per]
        for each in before.payloads
        for stage in costs().stages(each.op, each.size_bytes, before.group(each.of, each.axes), each.role)
    )
    return (work + sent) / step_s(parallel, micro_batches, 0, len(SWITCHED))


def never_loses(parallel: str, micro_batches: int = 1, layers: int = 8) -> float:
    """Return 1 where no axis and no tier that is switched on makes the step longer, and all together make it shorter."""
    times = [step_s(parallel, micro_batches, layers, on) for on in range(-1, len(SWITCHED) + 1)]
    falls = all(after <= before * (1 + 1e-9) for before, after in pairwise(times))
    return float(falls and times[-1] < times[0])
