"""Process groups as the file names them: numbered at their first call, described once, with their ranks in order."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

_LONGEST = 8  # ranks that are listed; longer groups with a stride become three numbers
_MEASURED = ("gloo", "mpi", "ucc")


class NumberedGroup(NamedTuple):
    """A group that the file has: its number there, whether the host sees calls end, and the counter of its collectives."""

    number: int
    is_measured: bool
    turns: Any


class GroupNumbers:
    """Numbers groups by name, and by backend where that depends on the device.

    A name that comes back after ``destroy_process_group`` is a new group: it is written with ``#1``, ``#2``, ... behind it.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._known: dict[tuple[str, bool], NumberedGroup] = {}
        self._turns: dict[str, Any] = {}
        self._gone: dict[str, int] = {}  # how often groups of a name were destroyed
        self._epoch = 0  # how often all were
        self._next = 0

    def known(self, group: Any, is_host: bool) -> NumberedGroup:
        """Return a process group, after telling the file about it; ``is_host``: the call's buffers are in host memory."""
        name = group.group_name
        numbered = self._known.get((name, is_host))
        return numbered if numbered is not None else self._describe(group, name, is_host)

    def forget(self, name: str | None) -> None:
        """A group, or all of them, is destroyed: names may now mean other groups."""
        if name is None:
            self._epoch += 1
            self._known.clear()
            self._turns.clear()
            return
        self._gone[name] = self._gone.get(name, 0) + 1
        self._turns.pop(name, None)
        for is_host in (False, True):
            self._known.pop((name, is_host), None)

    def _describe(self, group: Any, name: str, is_host: bool) -> NumberedGroup:
        from torch.distributed import distributed_c10d as c10d

        ranks = sorted_ranks(c10d, group)
        backend = backend_of(c10d, group, is_host)
        other = self._known.get((name, not is_host))
        if other is not None and backend == backend_of(c10d, group, not is_host):
            self._known[name, is_host] = other
            return other
        numbered = NumberedGroup(self._next, backend in _MEASURED, self._turns.setdefault(name, itertools.count()))
        self._next += 1
        lives = self._epoch + self._gone.get(name, 0)
        told = ["g", numbered.number, "%s#%d" % (name, lives) if lives else name, group.group_desc, backend]
        self._writer.line([*told, group.size(), group.rank(), packed(ranks) if ranks else None])
        self._known[name, is_host] = numbered
        return numbered


def backend_of(c10d: Any, group: Any, is_host: bool) -> str:
    """Return the backend that carries buffers in host memory, or on a device, in a group (``cpu:gloo,cuda:nccl``)."""
    configured = str(c10d._world.pg_backend_config.get(group, ""))
    pairs = dict(entry.split(":", 1) for entry in configured.lower().split(",") if ":" in entry)
    for device, backend in pairs.items():
        if (device == "cpu") == is_host:
            return backend
    return str(c10d._world.pg_map.get(group, ("?",))[0]).lower()


def sorted_ranks(c10d: Any, group: Any) -> list[int]:
    """Return the global ranks of a group, in the order of their ranks in it; empty where PyTorch does not say."""
    places = c10d._world.pg_group_ranks.get(group, {})
    return sorted(places, key=lambda rank: places[rank])


def packed(ranks: list[int]) -> Any:
    """Return ranks as a list, or as [first, step, count] in an object where they are evenly spaced and many."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if len(ranks) > _LONGEST and step > 0 and ranks == list(range(ranks[0], ranks[0] + step * len(ranks), step)):
        return {"first": ranks[0], "step": step, "count": len(ranks)}
    return ranks
