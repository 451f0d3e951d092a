"""Dependencies among the events of one rank: direct ones, and those that go through host operators."""

from __future__ import annotations

from collections.abc import Iterable

MOST_THROUGH = 16  # events kept behind one host operator
Edge = tuple[int, int, str]  # node before, node after, kind


class NodeDependencies:
    """What each node of a file waits for; contracted to edges among those nodes that became events."""

    def __init__(self) -> None:
        self.waits: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self.is_event: set[int] = set()
        self.cut = 0
        self._open: set[int] = set()

    def add(self, node: int, ctrl: list[int], data: list[int], *, is_event: bool) -> None:
        """Note a node and what it waits for."""
        self.waits[node] = (tuple(ctrl), tuple(data))
        if is_event:
            self.is_event.add(node)

    @property
    def unknown(self) -> int:
        """How many dependencies name nodes that the file does not hold (a traced window is cut there)."""
        known = self.waits.keys()
        return sum(1 for pair in self.waits.values() for side in pair for item in side if item not in known)

    def edges(self) -> Iterable[Edge]:
        """Yield every edge once: kind ``ctrl`` or ``data`` when direct, ``host`` through operators of the host."""
        behind: dict[int, tuple[int, ...]] = {}
        for node in self.is_event:
            seen = set()
            ctrl, data = self.waits[node]
            for kind, side in (("data", data), ("ctrl", ctrl)):
                for before in side:
                    if before in self.is_event and before not in seen and before != node:
                        seen.add(before)
                        yield before, node, kind
            for before in (*data, *ctrl):
                if before in self.is_event:
                    continue
                for event in self._behind(before, behind):
                    if event not in seen and event != node:
                        seen.add(event)
                        yield event, node, "host"

    def _behind(self, node: int, known: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the events that a host operator waits for, itself through host operators; cycles end."""
        stack = [node]
        while stack:
            here = stack[-1]
            if here in known:
                stack.pop()
                continue
            ctrl, data = self.waits.get(here, ((), ()))
            hosts = [item for item in (*ctrl, *data) if item not in self.is_event and item in self.waits]
            open_ = [item for item in hosts if item not in known]
            if open_ and here not in self._open:
                self._open.add(here)
                stack.extend(open_)
                continue
            behind = {item for item in (*ctrl, *data) if item in self.is_event}
            for item in hosts:
                behind.update(known.get(item, ()))
            self.cut += len(behind) > MOST_THROUGH
            known[here] = tuple(sorted(behind, reverse=True)[:MOST_THROUGH])
            stack.pop()
        return known[node]
