"""Models by the names people type: ``vgg16``, ``llama3.1-70b``, ``GPT-2``, with their parameters as they were published."""

from __future__ import annotations

import difflib
from typing import Any

from ringwright.ground.errors import UsageError
from ringwright.workloads import families
from ringwright.workloads.model_cards import ModelCard

MAY_BE_NONE = ("auxiliary", "dense_layers", "pooler")
ONE_IMAGE = ("alexnet", "inception-v3", "inception-v3-no-aux")  # their tables hold the sides of one image

HALVED = {"stable-diffusion-1.5": 8}  # what the side of an image is a multiple of


def names() -> tuple[str, ...]:
    """Return the name of every model, without aliases."""
    every = [*families.of_house().values(), *families.of_others().values()]
    return tuple(dict.fromkeys(size for module in every for size in module.SIZES if size != "tiny"))


def model(name: str, **changed: int) -> ModelCard:
    """Return the card of a model, some of its dimensions changed; case, hyphens and underscores do not matter.

    BERT comes as it is counted in print: with its pooler, without the masked-word head. UsageError names the nearest, or all.
    """
    family, module, size = _found(name)
    dims = dict(module.SIZES[size])
    if family == "bert":
        dims["pooler"] = 1
    strange = set(changed) - set(dims)
    if strange:
        raise UsageError(f"'{size}' has no dimension '{min(strange)}'", remedy=f"one of: {', '.join(dims)}")
    _check(size, dims, changed, getattr(module, "DEPTHS", ()))
    return ModelCard(family, size, families.dimensions(family, size, {**dims, **changed}))


def parameters(card: ModelCard) -> int:
    """Return the parameters of the whole model, once each; with those that no gradient reaches (``untrained`` of its family)."""
    untrained = getattr(families.family(card.family), "untrained", None)
    return card.anatomy().elements + (untrained(card.dims) if untrained else 0)


def active_parameters(card: ModelCard) -> int:
    """Return the parameters that one token meets: of the routed experts, only those that are chosen."""
    routed = sum(layer.elements for layer in card.anatomy().layers() if layer.expert)
    if not routed:
        return parameters(card)
    return parameters(card) - routed + routed * card.dims["active"] // card.dims["experts"]


def usual_sequence(card: ModelCard) -> int:
    """Return the tokens of a sequence that the model was trained with, or of an image; 1 for whole samples."""
    if card.takes_samples or card.fixed_tokens:
        return card.fixed_tokens or 1
    trained: dict[str, int] = getattr(families.family(card.family), "SEQUENCES", {})
    return trained.get(card.size) or card.dims["positions"]


def _found(name: str) -> tuple[str, Any, str]:
    """Return (family, its file, size) of a model by its name, ours first; UsageError names the nearest, or all."""
    plain = _plain(name)
    for room in (families.of_house, families.of_others):
        if plain in (known := _spellings(room())):
            return known[plain]
    known = _spellings({**families.of_others(), **families.of_house()})
    near = [known[each][2] for each in difflib.get_close_matches(plain, known, n=4, cutoff=0.6)]
    broken = [error.what for error in families.problems()]
    raise UsageError(
        "; ".join([f"'{name}' is not a model known here", *broken]),
        remedy="ringwright list models; "
        + (f"perhaps {', '.join(dict.fromkeys(near))}" if near else f"one of: {', '.join(names())}"),
    )


def _spellings(every: dict[str, Any]) -> dict[str, tuple[str, Any, str]]:
    """Return plain name -> (family, its file, size) of all sizes and aliases; a size goes before an alias."""
    first = [*every.items()][::-1]  # of two that have the same size the first is taken
    sizes = {_plain(size): (key, each, size) for key, each in first for size in each.SIZES if size != "tiny"}
    aliases = {
        _plain(alias): (key, each, size) for key, each in first for alias, size in getattr(each, "ALIASES", {}).items()
    }
    return {**aliases, **sizes}


def _check(size: str, dims: dict[str, int], changed: dict[str, int], depths: tuple[int, ...]) -> None:
    """Raise UsageError for dimensions that make no model."""
    for name, value in changed.items():
        if value < (name not in MAY_BE_NONE):
            raise UsageError(f"{name}: {value}", where=size, remedy="1 or more")
        if name == "image" and value != dims[name] and size in ONE_IMAGE:
            raise UsageError(f"{size} is known for images of {dims[name]} pixels alone", remedy="leave image out")
        if name == "depth" and value not in depths:
            raise UsageError(
                f"no plan for a depth of {value}", where=size, remedy=f"one of: {', '.join(map(str, depths))}"
            )
    made = {**dims, **changed}
    _check_side(size, made)
    if (
        {"heads", "hidden"} <= set(made)
        and "head" not in made
        and "nope" not in made
        and made["hidden"] % made["heads"]
    ):
        raise UsageError(
            f"{made['heads']} heads cannot share {made['hidden']} places evenly",
            where=size,
            remedy=f"heads that divide {made['hidden']}",
        )


def _check_side(size: str, dims: dict[str, int]) -> None:
    """Raise UsageError for an image that cannot be cut into patches, or halved as often as the model halves it."""
    piece = dims.get("patch", HALVED.get(size, 1))
    if dims.get("image", piece) % piece:
        raise UsageError(
            f"an image of {dims['image']} cannot be cut into pieces of {piece}",
            where=size,
            remedy=f"--dims.image {-(-dims['image'] // piece) * piece}",
        )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ")
