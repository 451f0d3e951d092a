"""The contract of model families: one file's parameters and operations against each other, and against the model itself.

The formulas are asked twice: once whole, once product by product. Where PyTorch is at hand, the rank program's model of the same
dimensions is built on its meta device, without memory, and its parameters are counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from ringwright.ground.errors import MissingExtraError, UsageError
from ringwright.workloads.flops import flops_per_token, forward
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.models import MAY_BE_NONE, active_parameters, parameters, usual_sequence
from ringwright.workloads.parts import Anatomy
from ringwright_lab.contracts.outcome import DECLINED, Outcome, TriedInput

MOST_BUILT = 400_000_000
Meta = Callable[[dict[str, int]], Any]  # dimensions -> a torch module on the meta device


def dimensions(card: ModelCard) -> str | None:
    """Dimensions are whole numbers above 0; what a model may be without may be 0."""
    strange = [name for name, value in card.dims.items() if value < (0 if name in MAY_BE_NONE else 1)]
    return f"{strange[0]}={card.dims[strange[0]]}" if strange else None


def anatomy(card: ModelCard) -> str | None:
    """Blocks and their layers have names of their own, what is used exists, and every shape has elements."""
    made: object = card.anatomy()
    if not isinstance(made, Anatomy):
        return f"anatomy returned {type(made).__name__}, not an Anatomy"
    doubled = [name for name, times in Counter(block.name for block in made.blocks).items() if times > 1]
    if doubled:
        return f"two blocks are called '{doubled[0]}'"
    for block in made.blocks:
        names = [layer.name for layer in block.layers]
        missing = [name for name in block.used if name not in names]
        if missing or len(set(names)) < len(names):
            return f"block {block.name}: {missing[0] + ' is used and is no layer' if missing else 'two layers of one name'}"
    for layer in made.layers():
        if not layer.shapes or min(size for shape in layer.shapes for size in shape) < 1:
            return f"layer {layer.name} has a shape without elements"
    return None


def same_again(card: ModelCard) -> str | None:
    """Two askings say the same."""
    return None if card.anatomy() == card.anatomy() else "the anatomy differs from one time to the next"


def held(card: ModelCard) -> str | None:
    """The products of a forward pass hold each parameter once; a token meets no more than there are."""
    works = [work for block in forward(card, 1, usual_sequence(card)).values() for work in block]
    counted, wanted = sum(work.parameters for work in works), parameters(card)
    extra = wanted - card.anatomy().elements  # corrections that no gradient reaches
    if counted not in (wanted, wanted - extra):
        return f"the products hold {counted:,} parameters, the shapes {wanted:,}"
    active = active_parameters(card)
    return None if 0 < active <= wanted else f"a token meets {active:,} of {wanted:,} parameters"


def operations(card: ModelCard) -> str | None:
    """Operations counted product by product are those of the closed form: three passes' worth for each token."""
    tokens = usual_sequence(card)
    modules = {} if card.takes_samples else {"mtp": 0}
    whole = flops_per_token(card, **modules)
    works = [work for block in forward(card, 2, tokens).values() for work in block]
    counted = 3.0 * sum(work.flops for work in works if work.kind != "router") / (2 * tokens)
    if math.isclose(counted, whole, rel_tol=1e-9):
        return None
    return f"{whole:.6g} operations a token by the closed form, {counted:.6g} by its products"


CHECKS: dict[str, Callable[[ModelCard], str | None]] = {
    "dimensions": dimensions,
    "anatomy": anatomy,
    "same-again": same_again,
    "held": held,
    "operations": operations,
}


def check_family(family: str, *, meta: Meta | None = None) -> list[Outcome]:
    """Return the outcome of every check on each size of a family; ``failures`` of them lists what does not agree.

    Checked are parameters and operations (FLOP) against each other and against published numbers, and the shapes against a
    model as PyTorch builds it.

    Parameters
    ----------
    family
        Its name, of the house or of an entry point of ``ringwright.families``.
    meta
        A function that builds the model from its dimensions on PyTorch's meta device, which holds no data; its parameters are
        compared one by one with the shapes that the family's file says. None: that of the house, where it can build the family.

    Returns
    -------
    list of Outcome
        One for each size of the family.

    Raises
    ------
    UsageError
        No family has that name.

    Examples
    --------
    >>> from ringwright_lab.testing import check_family, failures
    >>> failures(check_family("qwen3"))
    []
    """
    from ringwright.workloads import families

    try:
        module = families.family(family)
    except KeyError:
        known = ", ".join({**families.of_house(), **families.of_others()})
        raise UsageError(f"no family of models is named '{family}'", remedy=f"one of: {known}") from None
    if meta is None and getattr(module, "IS_BUILT", False):
        meta = partial(_house_meta, family)
    return [
        _examine(ModelCard(family, size, families.dimensions(family, size, dict(dims))), meta)
        for size, dims in module.SIZES.items()
    ]


def _examine(card: ModelCard, meta: Meta | None) -> Outcome:
    outcome = Outcome(TriedInput(card.family, card.size))
    for name, look in CHECKS.items():
        if not outcome.run(name, partial(look, card)) and name in ("dimensions", "anatomy"):
            return outcome
    outcome.run("meta", lambda: _as_built(card, meta))
    return outcome


def _house_meta(family: str, dims: dict[str, int]) -> Any:
    """Return the rank program's model without memory; MissingExtraError without PyTorch or its library."""
    try:
        from ringwright_lab.models.families import without_memory
    except ImportError:
        raise MissingExtraError("PyTorch is not at hand", extra="models") from None
    return without_memory(family, dims)


def _as_built(card: ModelCard, meta: Meta | None) -> str | None:
    """The model's own parameters that are trained, built without memory, have the shapes that the family's file says."""
    if meta is None:
        return f"{DECLINED}no meta model was given"
    if parameters(card) > MOST_BUILT:
        return f"{DECLINED}more than {MOST_BUILT:,} parameters take long to build"
    try:
        built = meta(dict(card.dims))
    except MissingExtraError as error:
        return f"{DECLINED}{error.what}"
    have = Counter(tuple(each.shape) for each in built.parameters() if each.requires_grad)
    want = Counter(card.anatomy().shapes())
    strange = (have - want) + (want - have)
    if not strange:
        return None
    shape = min(strange, key=str)
    return f"{have[shape]} parameters of shape {shape} in the model, {want[shape]} in the family's file"
