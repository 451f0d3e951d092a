"""Small policies for the tests of live ranks, named as ``live_policies:NAME``."""

from __future__ import annotations

from typing import Any

from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright.schedulers.order import by_layer


def fifo(workload: Workload, costs: Any) -> Workload:
    return workload.with_policy("fifo", boundary="barrier", agreement="index")


def fused(workload: Workload, costs: Any, cap: int = 2000) -> Workload:
    made = fifo(workload, costs)
    return made.with_policy("fused", rewrites=(Rewrite("fuse", ("dp",), {"caps_bytes": (cap,)}),))


def priority(
    workload: Workload,
    costs: Any,
    size_bytes: int = 1000,
    window: tuple[float, str] = (1, "operations"),
    agreement: str = "leader",
    boundary: str = "layer",
    cap: int = 0,
) -> Workload:
    rewrites = [Rewrite("partition", ("dp",), {"size_bytes": size_bytes})]
    if cap:
        rewrites.insert(0, Rewrite("fuse", ("dp",), {"caps_bytes": (cap,)}))
    return workload.with_policy(
        "priority",
        rewrites=tuple(rewrites),
        queue=Queue(keys=by_layer(workload), windows={"dp": window}),
        boundary=boundary,
        agreement=agreement,
    )
