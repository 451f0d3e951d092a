"""What can be set differently in a job: a setting of one layer, and a setup, which is several of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

EFFORT = {  # layer -> how much of a change it is: a repair, a variable or an argument, a library, a program, a purchase
    "repair": 0,
    "nccl": 1,
    "algorithm": 3,
    "ddp": 1,
    "fsdp": 1,
    "policy": 3,
    "rewrites": 4,
    "placement": 2,
    "parallel": 5,
    "switch": 3,
    "fabric": 6,
}
LAYERS = tuple(EFFORT)
ORDER, GRAPH, PLACED, MACHINE, FORM = "order", "graph", "placed", "machine", "form"
PREFETCH, BROKEN = "prefetch", "broken"
NETWORK, LINK = "network", "link"
REPAIRS = (NETWORK, LINK, BROKEN)  # slots of what is mended, in the order in which it is told
IN = " in "  # between a parallel form and its micro-batches
OPERATION = "operation "  # begins the slot of one operation: who does it


@dataclass(frozen=True)
class Setting:
    """One thing that can be set.

    Attributes
    ----------
    layer
        One of ``LAYERS``.
    slot
        What it fills: of one slot a setup has one setting at the most.
    spelling
        As the verb of its slot takes it: a policy, an algorithm, a fabric.
    what, where, risk
        What is set, in which file, variable or line of code, and what may go wrong with it.
    numbers
        Its numeric knobs, as powers of two, by which near settings are told from far ones.
    size_bytes, ranks
        Of an operation: the size and the group on which most of its time is spent; 0 and empty else.
    """

    layer: str
    slot: str
    spelling: str
    what: str
    where: str
    risk: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)
    size_bytes: int = 0
    ranks: tuple[int, ...] = ()

    @property
    def system(self) -> str:
        """The spelling without its knobs."""
        return self.spelling.partition(":")[0]

    @property
    def knobs(self) -> dict[str, str]:
        """The knobs of its spelling, as they are typed."""
        return dict(each.partition("=")[::2] for each in self.spelling.split(":")[1:])

    @property
    def op(self) -> str:
        """The operation of which it says who does it; empty for anything else."""
        return self.slot.removeprefix(OPERATION) if self.slot.startswith(OPERATION) else ""


@dataclass(frozen=True)
class Setup:
    """Settings at once, one a slot, in the order of their slots; an empty one is the job as it is."""

    settings: tuple[Setting, ...] = ()

    @classmethod
    def of(cls, settings: Iterable[Setting]) -> Setup:
        """Return a setup; of two settings of one slot the last one holds."""
        by = {each.slot: each for each in settings}
        return cls(tuple(by[slot] for slot in sorted(by)))

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    def and_(self, setting: Setting) -> Setup:
        """Return it with a setting more, or another one in its slot."""
        return Setup.of((*self.settings, setting))

    def without(self, slot: str) -> Setup:
        """Return it with a slot as it is today."""
        return Setup(tuple(each for each in self.settings if each.slot != slot))

    @cached_property
    def by_slot(self) -> dict[str, Setting]:
        """Its settings by slot."""
        return {each.slot: each for each in self.settings}

    def spelling(self, slot: str) -> str:
        """Return what a slot is set to, empty where it is as today."""
        setting = self.by_slot.get(slot)
        return setting.spelling if setting else ""

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """What tells it from others: slots and spellings."""
        return tuple((each.slot, each.spelling) for each in self.settings)

    @property
    def algorithms(self) -> dict[str, str]:
        """Who does which operation, of those that are set."""
        return {each.op: each.spelling for each in self.settings if each.op}

    @property
    def is_planned_anew(self) -> bool:
        """Whether it needs another plan or machine than the job of today: what takes long to ask about."""
        return not all(each.op for each in self.settings)

    @property
    def effort(self) -> int:
        """How much of a change all of it is."""
        return sum(EFFORT[each.layer] for each in self.settings)

    @property
    def policies(self) -> tuple[str, ...]:
        """The ways to join what is set of the graph and of the order into one policy, the usual one first."""
        parts = [each for each in (self.spelling(GRAPH), self.spelling(ORDER)) if each]
        return ("+".join(parts), "+".join(reversed(parts))) if len(parts) > 1 else tuple(parts)
