"""Models by the names people type: ``vgg16``, ``llama3.1-70b``, ``GPT-2``, with their parameters as they were published."""

from __future__ import annotations

import difflib

from ringwright.errors import UsageError
from ringwright.workloads.cards import DRAWN, FAMILIES, Card

ALIASES = {
    "gpt2": "gpt2-small", "gpt3": "gpt3-175b", "bert": "bert-base", "llama3.1-8b": "llama3-8b",
    "llama3.1-70b": "llama3-70b", "llama3.1-405b": "llama3-405b", "inception": "inception-v3",
    "mixtral": "mixtral-8x7b", "transformer-base": "transformer", "qwen3-30b": "qwen3-30b-a3b",
    "qwen3-235b": "qwen3-235b-a22b", "gpt-oss": "gpt-oss-120b", "vgg19-22k": "vgg-19-22k", "deepseek": "deepseek-v3",
}  # fmt: skip
# Tokens of a sequence as these models were trained with, where they could take more.
TRAINED_WITH = {
    "mixtral-8x7b": 4096, "deepseek-v3": 4096, "qwen3-30b-a3b": 4096, "qwen3-235b-a22b": 4096, "gpt-oss-120b": 4096,
    "transformer": 128, "transformer-big": 128,
}  # fmt: skip
MAY_BE_NONE = ("auxiliary", "dense_layers", "pooler")
ONE_IMAGE = ("alexnet", "inception-v3", "inception-v3-no-aux")  # their tables hold the sides of one image


def names() -> tuple[str, ...]:
    """Return the name of every model, without aliases."""
    every = {**FAMILIES, **DRAWN}
    return tuple(size for module in every.values() for size in module.SIZES if size != "tiny")


def model(name: str, **changed: int) -> Card:
    """Return the card of a model, some of its dimensions changed; case, hyphens and underscores do not matter.

    BERT comes as it is counted in print: with its pooler, without the masked-word head. UsageError names the nearest, or all.
    """
    known = {_plain(size): size for size in names()}
    known |= {_plain(alias): size for alias, size in ALIASES.items() if _plain(alias) not in known}
    plain = _plain(name)
    if plain not in known:
        near = [known[each] for each in difflib.get_close_matches(plain, known, n=4, cutoff=0.6)]
        raise UsageError(
            f"'{name}' is not a model known here",
            remedy=", ".join(dict.fromkeys(near)) or f"one of: {', '.join(names())}",
        )
    size = known[plain]
    family, module = next((key, each) for key, each in {**FAMILIES, **DRAWN}.items() if size in each.SIZES)
    dims = dict(module.SIZES[size])
    if family == "bert":
        dims["pooler"] = 1
    strange = set(changed) - set(dims)
    if strange:
        raise UsageError(f"'{size}' has no dimension '{min(strange)}'", remedy=f"one of: {', '.join(dims)}")
    _check(size, dims, changed, getattr(module, "DEPTHS", ()))
    return Card(family, size, {**dims, **changed})


def parameters(card: Card) -> int:
    """Return the parameters of the whole model, once each.

    With DeepSeek-V3 they count the corrections that its routers add to the scores, which no gradient reaches.
    """
    blocks = card.anatomy()
    routers = sum(block.moe for block in blocks.blocks) if card.family == "deepseek-v3" else 0
    return blocks.elements + routers * card.dims.get("experts", 0)


def active_parameters(card: Card) -> int:
    """Return the parameters that one token meets: of the routed experts, only those that are chosen."""
    routed = sum(layer.elements for layer in card.anatomy().layers() if layer.expert)
    if not routed:
        return parameters(card)
    return parameters(card) - routed + routed * card.dims["active"] // card.dims["experts"]


def usual_sequence(card: Card) -> int:
    """Return the tokens of a sequence that the model was trained with; 1 for images."""
    if card.is_image:
        return 1
    return TRAINED_WITH.get(card.size) or card.dims["positions"]


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
    if "heads" in made and "head" not in made and "nope" not in made and made["hidden"] % made["heads"]:
        raise UsageError(
            f"{made['heads']} heads cannot share {made['hidden']} places evenly", where=size,
            remedy=f"heads that divide {made['hidden']}",
        )  # fmt: skip


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ")
