"""When the last gradient is back under first come first served: a quick estimate, by which a threshold is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringwright.model.rewrites import applied, operations
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Rewrite, Workload
from ringwright.schedulers.order import GRADIENTS, released

SMALLEST, LARGEST = 18, 30  # 256 KiB to 1 GiB


def best_threshold(workload: Workload, costs: Costs) -> int:
    """Return the threshold in bytes, a power of two, whose all-reduces are all back first."""
    sizes = [1 << power for power in range(SMALLEST, LARGEST + 1)]
    rewrites = [Rewrite("threshold", GRADIENTS, {"size_bytes": size}) for size in sizes]
    finishes = dict(zip(sizes, finish(workload, costs, rewrites), strict=True))
    return min(sizes, key=finishes.__getitem__)


def finish(workload: Workload, costs: Costs, rewrites: Iterable[Rewrite]) -> Iterator[float]:
    """Yield, for one more rewrite each, the latest end of the gradients' operations over the classes, in seconds after the start
    of the last backward.
    """
    ready, before = released(workload), operations(workload)
    sent = [each for each in before if each.role in GRADIENTS and each.per == "step"]
    groups = {key: workload.group(*key) for key in {(each.of, each.axes) for each in sent}}
    for rewrite in rewrites:
        free = {each.name: 0.0 for each in workload.classes}
        for operation in applied(rewrite, before):
            if operation.role not in GRADIENTS or operation.per != "step":
                continue
            start = max(free[operation.of], *(ready[payload.name] for payload in operation.payloads))
            ranks = groups[operation.of, operation.axes]
            free[operation.of] = start + seconds(costs, operation.asked, operation.size_bytes, ranks, operation.role)
        yield max(free.values())
