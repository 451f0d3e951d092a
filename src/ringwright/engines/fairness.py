"""Max-min fair rates: nobody can have more without taking from somebody who has no more.

Progressive filling: all rates rise together until a resource is full; whoever uses it keeps that rate, the others rise
on. Resources that fill within one part in 10**9 of each other fill together, so that rounding does not split what is alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TOGETHER = 1 + 1e-9


def fair_rates(
    ways: Mapping[int, Sequence[int]], counts: Mapping[int, int], capacity: Sequence[float]
) -> dict[int, float]:
    """Return the rate of one flow of each class; ``ways``: resources of each class, ``counts``: its flows.

    A way that names a resource twice uses it twice.
    """
    left: dict[int, float] = {}
    users: dict[int, int] = {}
    for number, way in ways.items():
        for resource in way:
            left[resource] = capacity[resource]
            users[resource] = users.get(resource, 0) + counts[number]
    rates: dict[int, float] = {}
    while len(rates) < len(ways):
        level = min(left[resource] / users[resource] for resource in left if users[resource])
        full = {
            resource for resource in left if users[resource] and left[resource] / users[resource] <= level * TOGETHER
        }
        taken: dict[int, int] = {}
        for number, way in ways.items():
            if number in rates or full.isdisjoint(way):
                continue
            rates[number] = level
            for resource in way:
                taken[resource] = taken.get(resource, 0) + counts[number]
        for resource, flows in taken.items():
            left[resource] = max(left[resource] - level * flows, 0.0)
            users[resource] -= flows
    return rates
