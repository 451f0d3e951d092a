"""Which payloads share an operation: neighbours in an order, until a size or a number of them is reached."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from ringwright.model.workload import Payload, Workload

Bucket = tuple[str, ...]  # names of payloads


def alike(workload: Workload, payload: Payload) -> Hashable:
    """Return what payloads have in common that may lie beside each other in one operation."""
    value = workload.value.get(payload.source)
    lies = tuple((each.axis, each.how) for each in value.layout) if value else ()
    dims = len(value.dims) if value else 1
    return payload.of, payload.op, payload.axes, payload.role, payload.per, payload.dtype, lies, dims, payload.merges


def bucketed(
    payloads: Sequence[Payload], kind: Callable[[Payload], Hashable], size_bytes: int, count: int = 0
) -> list[Bucket]:
    """Return runs of payloads of one kind, in order: a run ends before the payload with which it would reach ``size_bytes``.

    With a ``count`` above 0 a run has that many payloads, whatever their size.
    """
    full: list[Bucket] = []
    open_runs: dict[Hashable, list[Payload]] = {}
    for payload in payloads:
        run = open_runs.setdefault(kind(payload), [])
        held = sum(each.size_bytes for each in run) + payload.size_bytes
        if run and (len(run) >= count if count else held >= size_bytes):
            full.append(tuple(each.name for each in run))
            run.clear()
        run.append(payload)
    full += [tuple(each.name for each in run) for run in open_runs.values()]
    position = {payload.name: at for at, payload in enumerate(payloads)}
    return sorted(full, key=lambda names: position[names[0]])
