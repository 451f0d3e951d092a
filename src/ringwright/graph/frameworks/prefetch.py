"""Which units of a fully sharded model are gathered ahead, and by which unit: the lists that FSDP2 takes for each module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from ringwright.ground.errors import UsageError

ROOT_UNIT = "root"  # all that does not repeat: the module that was sharded last


@dataclass(frozen=True)
class PrefetchPlan:
    """For each unit the units whose gathers it starts with its own forward pass, and with its own backward pass.

    A unit that is not listed starts none beside what FSDP2 does by itself. ``policy`` is who decided so.
    """

    forward: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    backward: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: str = "none"

    def __post_init__(self) -> None:
        for unit, ahead in chain(self.forward.items(), self.backward.items()):
            if unit in ahead or len(set(ahead)) < len(ahead):
                raise UsageError(f"unit '{unit}' gathers itself, or one twice", remedy="each other unit at most once")

    @property
    def units(self) -> tuple[str, ...]:
        """Every unit that starts a gather or is gathered by another one."""
        both = chain(self.forward.items(), self.backward.items())
        return tuple(dict.fromkeys(name for unit, ahead in both for name in (unit, *ahead)))

    @property
    def depth(self) -> int:
        """The most gathers that one unit starts."""
        return max((len(ahead) for ahead in chain(self.forward.values(), self.backward.values())), default=0)
