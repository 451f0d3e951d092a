"""Meetings: what passes one resource, and whether that is the same, in the same order, at all resources of a class.

A resource of a quotient serves each class of messages once. So no resource of the whole may serve two of one class; where one
does (32 hosts that share an adder), the first, second, ... of them become classes of their own. And messages of one block that
come at one instant are served in their order in the block, which must be the same everywhere. A resource without bytes to
serve, such as a latency alone, delays all alike and may be shared by any.

What counts is a *passage*: a message, or all messages of one multicast that have come the same way so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.engines.folding.partition import joined
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.folding.move_lists import MoveList
    from ringwright.engines.folding.partition import CoarsestPartition
    from ringwright.engines.machine import Machine


@dataclass(frozen=True)
class Passages:
    """What passes resources in one list: a row for each hop, a column for each pair; resource -1 where a route has ended.

    ``number`` and ``label`` tell passages and their classes, ``first`` is the index in the list of a passage's first message,
    and ``leads`` the class of that message's pair. ``pairs`` are the pairs of the list, ``position`` the least index of each
    class, by which the messages of a quotient are in order.
    """

    pairs: np.ndarray
    position: np.ndarray
    resource: np.ndarray
    number: np.ndarray
    label: np.ndarray
    first: np.ndarray
    leads: np.ndarray


def settle(partition: CoarsestPartition, lists: list[MoveList], *, fluid: bool) -> str:
    """Cut classes until no resource serves two of one; raise DeclinedError where orders differ.

    Returns the name of a resource at which messages of one class met, or nothing. ``fluid``: what meets shares, so that orders
    do not count.
    """
    serves = _serves(partition.machine)
    passages = [_passages(partition, *each) for each in zip(lists, partition.pair_of, strict=True)]
    where = ""
    while True:
        number, at = _met(partition, passages, serves)
        if at < 0:
            break
        where = where or partition.machine.label(at)
        if not partition.split(number):
            raise DeclinedError(f"messages that are alike queue at {where}")
        passages = [_passages(partition, *each) for each in zip(lists, partition.pair_of, strict=True)]
    for met in () if fluid else passages:
        _require_order(met, serves)
    return where


def _serves(machine: Machine) -> np.ndarray:
    """Return which resources make one message wait for another; the last entry stands for none. Of shape (resources + 1,)."""
    import numpy as np

    serves = (machine.ps_per_byte > 0) | (machine.holds & (machine.latency > 0))
    serves[[resource for resource, _, _ in (*machine.changes, *machine.delays)]] = True
    return np.append(serves, False)


def _passages(partition: CoarsestPartition, moves: MoveList, pair: np.ndarray) -> Passages:
    import numpy as np

    pairs, first = np.unique(pair, return_index=True)
    routes, classes = partition.routes[pairs].T, partition.pairs[pairs]
    position = partition.positions(classes, first)
    number, label = np.arange(len(pairs)), classes
    if not moves.block.multicast:
        each = (np.broadcast_to(column, routes.shape) for column in (number, label, first, classes))
        return Passages(pairs, position, routes, *each)
    if partition.machine.sends[routes[routes >= 0]].any():
        raise DeclinedError("the software of a rank sends to many at once")
    rows = []
    number, label = partition.src[pairs], partition.nodes[partition.src[pairs]]
    for hop, resource in enumerate(routes):
        number = joined(number, resource)
        label = joined(label, np.where(resource >= 0, partition.resources[resource], -1))
        order = np.lexsort((first, number))
        earliest = order[np.searchsorted(number[order], number)]
        apart = hop * len(pairs)
        rows.append((number + apart, label + apart, first[earliest], classes[earliest]))
    return Passages(
        pairs, position, routes, *(np.array(column).reshape(routes.shape) for column in zip(*rows, strict=True))
    )


def _met(partition: CoarsestPartition, passages: list[Passages], serves: np.ndarray) -> tuple[np.ndarray, int]:
    """Return numbers that tell apart pairs of one class that meet at a resource, and the first such resource, -1 for none.

    int64 of shape (pairs,).
    """
    import numpy as np

    where, out = -1, np.zeros(len(partition.pairs), np.int64)
    for met in passages:
        used = serves[met.resource]
        key = met.resource[used] * (int(met.label.max(initial=0)) + 1) + met.label[used]
        order = np.lexsort((met.first[used], key))
        key, number = key[order], met.number[used][order]
        inside = np.cumsum(np.append(True, number[1:] != number[:-1])[: len(order)])
        turn = np.zeros(met.resource.shape, np.int64)
        turn[tuple(axis[order] for axis in np.nonzero(used))] = inside - inside[np.searchsorted(key, key)]
        if where < 0 and turn.any():
            where = int(met.resource[turn > 0][0])
        for hop in turn[turn.any(axis=1)]:
            worst = np.zeros_like(out)
            worst[met.pairs] = hop
            out = joined(out, worst)
    return out, where


def _require_order(met: Passages, serves: np.ndarray) -> None:
    """Raise DeclinedError unless passages follow each other alike everywhere, and are led by messages of one class."""
    import numpy as np

    used = met.resource >= 0
    labels, leads = met.label[used], met.leads[used]
    if len(np.unique(labels)) < len(np.unique(joined(labels, leads))):
        raise DeclinedError("multicasts of one class begin with messages of different ones")
    used &= serves[met.resource]
    order = np.lexsort((met.first[used], met.resource[used]))
    resource, number, rank = (column[used][order] for column in (met.resource, met.number, met.position[met.leads]))
    behind = (resource[1:] == resource[:-1]) & (number[1:] != number[:-1]) & (rank[1:] <= rank[:-1])
    if behind.any():
        raise DeclinedError("moves of one step share a link in an order that differs from rank to rank")
