"""Which switch of a fabric sums whom: a tree of switches over the ranks, its root in the middle."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from ringwright.ground.errors import DeclinedError
from ringwright.model.topology import SWITCH

if TYPE_CHECKING:
    from ringwright.model.topology import Topology


class SwitchSeat(msgspec.Struct, frozen=True):
    """One switch: ``workers`` send to it; ``parent`` is the switch above (-1: none), where it is worker ``branch``."""

    node: int
    workers: int
    parent: int = -1
    branch: int = -1


class WorkerSeat(msgspec.Struct, frozen=True):
    """One rank: worker ``number`` of the switch ``node``."""

    node: int
    number: int


def seats(topology: Topology) -> tuple[list[SwitchSeat], list[WorkerSeat]]:
    """Return the switches, root first, and where each rank belongs; DeclinedError where ranks do not all hang on switches."""
    neighbours: dict[int, list[int]] = {node: [] for node in range(topology.n_nodes)}
    for here, there in zip(topology.src.tolist(), topology.dst.tolist(), strict=True):
        neighbours[here].append(there)
    is_switch = (topology.kinds == SWITCH).tolist()
    switches = [node for node in range(topology.n_nodes) if is_switch[node]]
    ranks = range(topology.n_ranks)
    if not switches or any(not any(is_switch[each] for each in neighbours[rank]) for rank in ranks):
        raise DeclinedError(
            "a switch sums for ranks that hang on one", where=topology.name, remedy="switch:4,rate=100Mb/s"
        )
    root = min(switches, key=lambda node: (max(_distances(node, neighbours, is_switch).values()), node))
    above: dict[int, int] = {root: -1}
    order, children = [root], dict.fromkeys(switches, 0)
    branch = {root: -1}
    workers: dict[int, WorkerSeat] = {}
    front = deque([root])
    while front:
        here = front.popleft()
        for there in neighbours[here]:
            if there in above or there in workers:
                continue
            if is_switch[there]:
                above[there], branch[there] = here, children[here]
                order.append(there)
                front.append(there)
            else:
                workers[there] = WorkerSeat(here, children[here])
            children[here] += 1
    made = [SwitchSeat(node, children[node], above[node], branch[node]) for node in order]
    return made, [workers[rank] for rank in ranks]


def _distances(start: int, neighbours: dict[int, list[int]], is_switch: list[bool]) -> dict[int, int]:
    """Return how far each node is, through switches."""
    away, front = {start: 0}, deque([start])
    while front:
        here = front.popleft()
        for there in neighbours[here]:
            if there not in away:
                away[there] = away[here] + 1
                if is_switch[there]:
                    front.append(there)
    return away
