"""Deadlock: how many queues a gated port needs so that no circle of waits stands still for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.packets.network import Connections


def queues_needed(made: Connections, gate: np.ndarray) -> np.ndarray:
    """Return how many queues each gated port has: one, or one for each hop of a path where waits could close a circle.

    int32 of shape (resources,). A torus whose links wait for one another stands still for ever; hop by hop there is no circle
    (the virtual lanes of InfiniBand, the classes of Ethernet).
    """
    import numpy as np

    needed = np.ones(len(gate), np.int32)
    if not gate.any():
        return needed
    following = set()
    for starts, values in ((made.path_starts, made.path_ports), (made.back_starts, made.back_ports)):
        inner = np.ones(len(values), bool)
        ends = starts[1:][np.diff(starts) > 0] - 1
        inner[ends] = False
        at = np.flatnonzero(inner)
        keys = np.unique(values[at].astype(np.int64) * len(gate) + values[at + 1])
        following.update(keys.tolist())
    if _has_circle([divmod(key, len(gate)) for key in following]):
        longest = int(np.diff(made.path_starts).max(initial=1))
        needed[gate > 0] = max(longest, int(np.diff(made.back_starts).max(initial=1)))
    return needed


def _has_circle(arrows: list[tuple[int, int]]) -> bool:
    """Return whether arrows between numbers lead back to where they came from."""
    after: dict[int, list[int]] = {}
    waits: dict[int, int] = {}
    for one, other in arrows:
        after.setdefault(one, []).append(other)
        waits[other] = waits.get(other, 0) + 1
        waits.setdefault(one, 0)
    free = [each for each, count in waits.items() if not count]
    left = len(waits)
    while free:
        left -= 1
        for other in after.get(free.pop(), ()):
            waits[other] -= 1
            if not waits[other]:
                free.append(other)
    return left > 0
