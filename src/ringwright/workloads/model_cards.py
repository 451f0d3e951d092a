"""Model cards: a model family in one of its sizes, with its dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringwright.errors import UsageError
from ringwright.workloads.families import family as found_family
from ringwright.workloads.families import of_house
from ringwright.workloads.parts import Anatomy

# Those that a rank program builds, so that sweeps offer them; the others are known by their formulas alone.
FAMILIES: dict[str, Any] = {name: each for name, each in of_house().items() if getattr(each, "IS_BUILT", False)}
IMAGES = tuple(name for name, each in FAMILIES.items() if any("image" in dims for dims in each.SIZES.values()))
MIXTURES = tuple(name for name, each in FAMILIES.items() if any("experts" in dims for dims in each.SIZES.values()))


@dataclass(frozen=True)
class ModelCard:
    """A model: family, name of its size, and dimensions in the words of its family's file."""

    family: str
    size: str
    dims: dict[str, int]

    def anatomy(self) -> Anatomy:
        """Return its parameters in closed form."""
        made: Anatomy = self._module().anatomy(self.dims)
        return made

    def sides(self) -> list[tuple[int, int]]:
        """Return the sides (pixels) of the image before and after each convolution, in the order of registration."""
        pairs: list[tuple[int, int]] = self._module().sides(self.dims)
        return pairs

    def branches(self) -> set[str]:
        """Return the layers ("block.layer") that begin a branch of their block beside its first; none where it has none."""
        named = getattr(self._module(), "branches", None)
        names: set[str] = named(self.dims) if named else set()
        return names

    @property
    def is_image(self) -> bool:
        """Whether it takes images, not tokens."""
        return "image" in self.dims

    @property
    def is_mixture(self) -> bool:
        """Whether it is a mixture of experts."""
        return "experts" in self.dims

    def _module(self) -> Any:
        return found_family(self.family)


def sizes(family: str) -> tuple[str, ...]:
    """Return the sizes of a family."""
    return tuple(_family(family).SIZES)


def card(family: str, size: str = "tiny", **changed: int) -> ModelCard:
    """Return the card of a size, some of its dimensions changed; UsageError for a name that does not exist."""
    known: dict[str, dict[str, int]] = _family(family).SIZES
    if size not in known:
        raise UsageError(f"'{family}' has no size '{size}'", remedy=f"one of: {', '.join(known)}")
    strange = set(changed) - set(known[size])
    if strange:
        raise UsageError(f"'{family}' has no dimension '{min(strange)}'", remedy=f"one of: {', '.join(known[size])}")
    return ModelCard(family, size, {**known[size], **changed})


def _family(family: str) -> Any:
    if family not in FAMILIES:
        raise UsageError(f"'{family}' is not a model family", remedy=f"one of: {', '.join(FAMILIES)}")
    return FAMILIES[family]
