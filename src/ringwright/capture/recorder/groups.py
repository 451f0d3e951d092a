"""Process groups as the file names them: numbered at their first call, described once, with their ranks in order."""

from __future__ import annotations

from typing import Any

_LONGEST = 8  # ranks that are listed; longer groups with a stride become three numbers


class Groups:
    """Numbers groups by name; a name that comes back after ``destroy_process_group`` is a new group."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._numbers: dict[str, int] = {}
        self._next = 0
        self.measured: dict[int, bool] = {}  # whether ends of calls can be seen from the host

    def number(self, group: Any) -> int:
        """Return the number of a process group, after telling the file about it."""
        name = group.group_name
        found = self._numbers.get(name)
        return found if found is not None else self._describe(group, name)

    def forget(self) -> None:
        """Names may now mean other groups."""
        self._numbers.clear()

    def _describe(self, group: Any, name: str) -> int:
        from torch.distributed import distributed_c10d as c10d

        number = self._numbers[name] = self._next
        self._next += 1
        ranks = sorted_ranks(c10d, group)
        backend = c10d._world.pg_map.get(group, ("?",))[0]
        self.measured[number] = str(backend).lower() in ("gloo", "mpi", "ucc")
        size, mine = group.size(), group.rank()
        told = ["g", number, name, group.group_desc, str(backend), size, mine, packed(ranks) if ranks else None]
        self._writer.line(told)
        return number


def sorted_ranks(c10d: Any, group: Any) -> list[int]:
    """Return the global ranks of a group, in the order of their ranks in it; empty where PyTorch does not say."""
    places = c10d._world.pg_group_ranks.get(group, {})
    return sorted(places, key=lambda rank: places[rank])


def packed(ranks: list[int]) -> Any:
    """Return ranks as a list, or as [first, step, count] in an object where they are evenly spaced and many."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if len(ranks) > _LONGEST and ranks == list(range(ranks[0], ranks[0] + step * len(ranks), step or 1)):
        return {"first": ranks[0], "step": step, "count": len(ranks)}
    return ranks
