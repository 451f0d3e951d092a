"""Model cards: a model family in one of its sizes, with its dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringwright.ground.errors import UsageError
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
        pairs = getattr(self._module(), "sides", None)
        made: list[tuple[int, int]] = pairs(self.dims) if pairs and self.takes_samples else []
        return made

    def branches(self) -> set[str]:
        """Return the layers ("block.layer") that begin a branch of their block beside its first; none where it has none."""
        named = getattr(self._module(), "branches", None)
        names: set[str] = named(self.dims) if named else set()
        return names

    @property
    def takes_images(self) -> bool:
        """Whether it takes images, through convolutions or cut into patches."""
        return "image" in self.dims

    @property
    def takes_samples(self) -> bool:
        """Whether it works on whole samples, not on tokens (words, or patches of an image)."""
        return self.has_tables or (self.takes_images and self.fixed_tokens is None)

    @property
    def has_tables(self) -> bool:
        """Whether it looks up tables of embeddings that are shared out over the ranks."""
        return "tables" in self.dims

    @property
    def unit(self) -> str:
        """What its operations are counted for."""
        return "sample" if self.has_tables else "image" if self.takes_samples else "token"

    @property
    def fixed_tokens(self) -> int | None:
        """Tokens of an image that is cut into patches; None for models whose sequences may have any length, or that have none."""
        count = getattr(self._module(), "tokens", None)
        tokens: int | None = count(self.dims) if count else None
        return tokens or None

    @property
    def refused(self) -> dict[str, tuple[str, str]]:
        """Parallel forms that it has not: the reason for each, and what it has instead."""
        reasons: dict[str, tuple[str, str]] = getattr(self._module(), "REFUSED", {})
        return reasons

    @property
    def decodes(self) -> bool:
        """Whether it answers token by token."""
        whole = self.takes_samples or self.fixed_tokens is not None
        return not whole and self.family not in ("bert", "transformer")

    @property
    def cuts_words(self) -> bool:
        """Whether tensor parallelism cuts what its inputs are looked up in, and its logits."""
        return "vocabulary" in self.dims

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
