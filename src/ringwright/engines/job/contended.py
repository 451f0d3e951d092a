"""Which links of a laid-out step can ever hold an operation up: the others, and copies of one, need not be followed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

Loads = tuple[tuple[int, float, float], ...]


def contended(
    rows: Sequence[tuple[int, int, Loads]], queue_of: Sequence[int], watched: Collection[int] = ()
) -> list[tuple[int, int, Loads]]:
    """Return the rows (first, count, loads) without resources that never slow anything down, but for those that are watched.

    Of a queue one operation moves at a time, so a resource can be short only where the largest shares of its queues add up to
    more than all of it. Resources with equal shares in every row are one. ``queue_of``: the queue of each instance.
    """
    largest: dict[int, dict[int, float]] = defaultdict(dict)
    users: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)  # by number of the list: lists are long
    number = {loads: at for at, loads in enumerate(dict.fromkeys(loads for _, _, loads in rows))}
    for first, _, loads in rows:
        queue, at = queue_of[first], number[loads]
        for resource, share, claim in loads:
            largest[resource][queue] = max(share, largest[resource].get(queue, 0.0))
            users[resource][at] = share, claim
    seen: dict[tuple[tuple[int, tuple[float, float]], ...], int] = {}
    kept = set(watched)
    for resource, by_queue in largest.items():
        if sum(by_queue.values()) <= 1.0 or resource in kept:
            continue
        pattern = tuple(sorted(users[resource].items()))
        if seen.setdefault(pattern, resource) == resource:
            kept.add(resource)
    left = {loads: tuple(each for each in loads if each[0] in kept) for loads in number}
    return [(first, count, left[loads]) for first, count, loads in rows]
