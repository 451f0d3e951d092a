"""Cards: a model family in one of its sizes, with its dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from ringwright.errors import UsageError
from ringwright.workloads.families import bert, deepseek_v3, gpt2, llama, mixtral, resnet, vgg
from ringwright.workloads.parts import Anatomy

FAMILIES: dict[str, ModuleType] = {
    "gpt2": gpt2, "llama": llama, "bert": bert, "mixtral": mixtral, "deepseek-v3": deepseek_v3, "resnet": resnet,
    "vgg": vgg,
}  # fmt: skip
IMAGES = ("resnet", "vgg")
MIXTURES = ("mixtral", "deepseek-v3")


@dataclass(frozen=True)
class Card:
    """A model: family, name of its size, and dimensions in the words of its family's file."""

    family: str
    size: str
    dims: dict[str, int]

    def anatomy(self) -> Anatomy:
        """Return its parameters in closed form."""
        made: Anatomy = FAMILIES[self.family].anatomy(self.dims)
        return made


def sizes(family: str) -> tuple[str, ...]:
    """Return the sizes of a family."""
    return tuple(_family(family).SIZES)


def card(family: str, size: str = "tiny", **changed: int) -> Card:
    """Return the card of a size, some of its dimensions changed; UsageError for a name that does not exist."""
    known: dict[str, dict[str, int]] = _family(family).SIZES
    if size not in known:
        raise UsageError(f"'{family}' has no size '{size}'", remedy=f"one of: {', '.join(known)}")
    strange = set(changed) - set(known[size])
    if strange:
        raise UsageError(f"'{family}' has no dimension '{min(strange)}'", remedy=f"one of: {', '.join(known[size])}")
    return Card(family, size, {**known[size], **changed})


def _family(family: str) -> ModuleType:
    if family not in FAMILIES:
        raise UsageError(f"'{family}' is not a model family", remedy=f"one of: {', '.join(FAMILIES)}")
    return FAMILIES[family]
