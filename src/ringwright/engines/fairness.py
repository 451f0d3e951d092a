"""Max-min fair rates: no flow can have more without taking from a flow that has no more than it.

Progressive filling: all rates rise together until a resource is full; its flows keep that rate, the others rise further.
Rates are integers (``UNIT`` is one byte per picosecond) rounded down, so sums depend on no order and no resource is ever
overdrawn. Resources that fill within one part in 2**30 of each other fill together: rounding does not split what is alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

UNIT = 1 << 50
MOST_RATE = 1024.0  # bytes per picosecond, for what has no limit


def capacity(ps_per_byte: float) -> int:
    """Return the capacity of a resource in integer rate units (``UNIT`` is one byte per ps), from its ps per byte."""
    return int(min(1 / ps_per_byte if ps_per_byte > 0 else MOST_RATE, MOST_RATE) * UNIT)


def fair_rates(
    routes: Mapping[int, Sequence[int]], counts: Mapping[int, int], free: Mapping[int, int]
) -> dict[int, int]:
    """Return the rate of one flow of each class.

    ``routes`` are the resources of each class (twice, if used twice), ``counts`` its flows, ``free`` what resources can carry.
    """
    left = {resource: free[resource] for route in routes.values() for resource in route}
    users = dict.fromkeys(left, 0)
    for number, route in routes.items():
        for resource in route:
            users[resource] += counts[number]
    rates: dict[int, int] = {}
    while len(rates) < len(routes):
        shares = {resource: left[resource] // flows for resource, flows in users.items() if flows}
        level = min(shares.values())
        full = {resource for resource, share in shares.items() if share <= level + (level >> 30)}
        for number, route in routes.items():
            if number in rates or full.isdisjoint(route):
                continue
            rates[number] = level
            for resource in route:
                left[resource] -= level * counts[number]
                users[resource] -= counts[number]
    return rates
