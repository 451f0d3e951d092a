"""Tasks or payloads by name that know who writes and who reads a value, however often they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

N = TypeVar("N")
Ends = Callable[[N], Iterable[str]]


class Indexed(dict[str, N], Generic[N]):
    """A dictionary of nodes; ``writers`` and ``readers`` of a value come in its order.

    ``earlier`` holds, by name, what nodes were before they were changed, added (None) or taken out; who watches empties it.
    """

    def __init__(self, nodes: Mapping[str, N], written: Ends[N], read: Ends[N]) -> None:
        super().__init__()
        self._written, self._read = written, read
        self._writers: dict[str, dict[str, None]] = {}
        self._readers: dict[str, dict[str, None]] = {}
        self.earlier: dict[str, N | None] = {}
        for name, node in nodes.items():
            self[name] = node
        self.earlier.clear()

    def __setitem__(self, name: str, node: N) -> None:
        self.earlier.setdefault(name, self.get(name))
        if name in self:
            self._forget(name)
        super().__setitem__(name, node)
        for value in self._written(node):
            self._writers.setdefault(value, {})[name] = None
        for value in self._read(node):
            self._readers.setdefault(value, {})[name] = None

    def pop(self, name: str) -> N:  # type: ignore[override]
        """Take a node out and return it; KeyError where there is none."""
        self.earlier.setdefault(name, self.get(name))
        self._forget(name)
        return super().pop(name)

    def sorted_by(self, names: Iterable[str]) -> Indexed[N]:
        """Return these nodes in that order of all their names, in place of this dictionary: who reads and writes is the same."""
        made = Indexed[N]({}, self._written, self._read)
        made.update({name: self[name] for name in names})
        made._writers, made._readers, made.earlier = self._writers, self._readers, self.earlier
        return made

    def writers(self, value: str) -> list[N]:
        """Return who writes a value."""
        return self._in_order(self._writers.get(value, {}))

    def readers(self, value: str) -> list[N]:
        """Return who reads a value, of this step or an earlier one."""
        return self._in_order(self._readers.get(value, {}))

    def _in_order(self, names: Mapping[str, None]) -> list[N]:
        if len(names) < 2:
            return [self[name] for name in names]
        made = list[N]()
        for name in self:
            if name in names:
                made.append(self[name])
                if len(made) == len(names):
                    break
        return made

    def _forget(self, name: str) -> None:
        node = self[name]
        for known, values in ((self._writers, self._written(node)), (self._readers, self._read(node))):
            for value in values:
                known.get(value, {}).pop(name, None)
