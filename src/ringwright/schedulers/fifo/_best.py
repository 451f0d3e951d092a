"""When the last gradient is back under first come first served: a quick estimate, by which a threshold is chosen."""

from __future__ import annotations

from dataclasses import replace

from ringwright.costs.stages import Costs, seconds
from ringwright.rewrites import operations
from ringwright.schedulers.order import GRADIENTS, released
from ringwright.workload import Rewrite, Workload

SMALLEST, LARGEST = 18, 30  # 256 KiB to 1 GiB


def best_threshold(workload: Workload, costs: Costs) -> int:
    """Return the threshold in bytes, a power of two, whose all-reduces are all back first."""
    sizes = [1 << power for power in range(SMALLEST, LARGEST + 1)]
    return min(sizes, key=lambda size: finish(workload, costs, Rewrite("threshold", GRADIENTS, {"size_bytes": size})))


def finish(workload: Workload, costs: Costs, *more: Rewrite) -> float:
    """Return the latest end of the gradients' operations over the classes, in seconds after the start of the last backward."""
    policy = replace(workload.policy, rewrites=(*(workload.policy.rewrites or ()), *more))
    ready, free = released(workload), {each.name: 0.0 for each in workload.classes}
    for operation in operations(replace(workload, policy=policy)):
        if operation.role not in GRADIENTS or operation.per != "step":
            continue
        start = max(free[operation.of], *(ready[payload.name] for payload in operation.payloads))
        ranks = workload.group(operation.of, operation.axes)
        free[operation.of] = start + seconds(costs, operation.op, operation.size_bytes, ranks, operation.role)
    return max(free.values())
