"""Pools of gradients that may be fused, cut into buckets by their bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ringwright.model.rewrites.operation import Operation, merged


def bucketed(operations: Sequence[Operation], cap: Callable[[int], int]) -> Iterator[Operation]:
    """Yield a bucket whenever a pool holds ``cap(n)`` bytes, n the buckets it has made so far; last, what is left.

    Operations of different classes of ranks, roles, collectives or groups of merging are in different pools.
    """
    pools: dict[tuple[str, ...], list[Operation]] = defaultdict(list)
    held: dict[tuple[str, ...], int] = defaultdict(int)  # bytes
    made: dict[tuple[str, ...], int] = defaultdict(int)
    for each in operations:
        merges = each.payloads[0].merges
        if not merges:
            yield each
            continue
        pool = (each.of, each.role, each.op, each.per, merges, each.network)
        pools[pool].append(each)
        held[pool] += each.size_bytes
        if held[pool] >= cap(made[pool]):
            yield merged(pools.pop(pool))
            held[pool], made[pool] = 0, made[pool] + 1
    for rest in pools.values():
        yield merged(rest)
