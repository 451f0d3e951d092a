"""One failed optic: a cable of a port at half of its rate, as `optics degrade` leaves it, and what a network needs to bear it.

Which one fails matters: a tree of a library loads some ranks more than others. A few are tried on the fabric as it is, and the
costliest stands for all. The cable alone is slow, not what joins the NIC to its GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.fabrics.faults import LANES_LEFT, apply

if TYPE_CHECKING:
    from ringwright.advise.provision.network import NetworkPlan, NetworkTiers
    from ringwright.model.topology import Topology

MOST_TRIED = 3


@dataclass(frozen=True)
class Headroom:
    """What one failed optic costs: its fault line, and the step with it on the recommended network.

    ``given_us`` is the step with it where ports and tiers have the rates of the fabric as it is. ``nic_gbs`` is the least rate
    of all ports with which the step keeps its share even so, None where none on sale does; ``factor`` is that over the
    recommended rate.
    """

    fault: str
    keeps: bool
    step_us: float
    given_us: float
    nic_gbs: float | None
    factor: float | None


def headroom(
    tiers: NetworkTiers, plan: NetworkPlan, ranks: int, most_s: float, step_s: Callable[[Topology], float]
) -> Headroom:
    """Return what it takes to keep a step within ``most_s`` seconds with one optic lost, at the oversubscription of the plan.

    ``tiers`` are those of the fabric with as many NICs as the plan has; the job is on its first ``ranks``.
    """
    lines = [f"{cable} rate {LANES_LEFT:.0%}" for cable in some_cables(tiers, ranks)]
    given = {line: step_s(apply(tiers.topology, [line])) for line in lines}
    line = max(given, key=lambda each: given[each])
    given_us = given[line] * 1e6

    def with_fault(rate: float) -> float:
        return step_s(apply(tiers.sized(replace(plan, nic_rate=rate)), [line]))

    first = with_fault(plan.nic_rate)
    if first <= most_s:
        return Headroom(line, True, first * 1e6, given_us, plan.nic_rate / 1e9, 1.0)
    rates = [each for each in (*tiers.nic_rates()[::-1], *tiers.more_nic_rates()) if each > plan.nic_rate]
    least = _least(rates, lambda rate: with_fault(rate) <= most_s)
    if least is None:
        return Headroom(line, False, first * 1e6, given_us, None, None)
    return Headroom(line, False, first * 1e6, given_us, least / 1e9, round(least / plan.nic_rate, 6))


def _least(rates: list[float], holds: Callable[[float], bool]) -> float | None:
    """Return the first of rising rates that holds, by halving; None where not even the last does."""
    if not rates or not holds(rates[-1]):
        return None
    low, high = -1, len(rates) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if holds(rates[middle]):
            high = middle
        else:
            low = middle
    return rates[high]


def some_cables(tiers: NetworkTiers, ranks: int) -> list[str]:
    """Return the cables of a few ports of a job's ranks as fault lines name them: the first, and others that lie differently."""
    top = tiers.topology
    ports = tiers.ports[: max(1, round(tiers.nics * ranks / top.n_ranks))].tolist()
    at = dict.fromkeys(min(len(ports) - 1, each) for each in (0, 1, len(ports) // 2 + 1))
    chosen = [ports[each] for each in at][:MOST_TRIED]
    return [f"link {top.label(int(top.src[port]))}--{top.label(int(top.dst[port]))}" for port in chosen]
