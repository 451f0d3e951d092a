"""Which parallel form goes with which family and mode."""

from __future__ import annotations

from collections.abc import Mapping

from ringwright.ground.errors import UsageError
from ringwright.workloads.model_cards import FAMILIES, IMAGES, MIXTURES, ModelCard

FORMS = ("none", "ddp", "fsdp", "tp", "tp+fsdp", "ep", "pp")
MODES = ("training", "lora", "head", "inference")
STAGED = ("llama", "mixtral", "deepseek-v3")  # in the others the first and the last stage share a matrix
CUT = ("llama", "mixtral", "deepseek-v3", "bert")
DECODERS = ("gpt2", "llama", "mixtral", "deepseek-v3")


def forms(family: str, mode: str = "training") -> tuple[str, ...]:
    """Return the forms that are legal for a family in a mode."""
    legal = ["none", "fsdp"] if mode == "inference" else ["none", "ddp", "fsdp"]
    if family in CUT and mode != "lora":
        legal.append("tp")
    if family == "llama" and mode != "lora":
        legal.append("tp+fsdp")
    if family in MIXTURES:
        legal.append("ep")
    if family in STAGED and mode in ("training", "inference"):
        legal.append("pp")
    return tuple(legal)


def modes(family: str) -> tuple[str, ...]:
    """Return the modes that are legal for a family."""
    if family in IMAGES:
        return ("training", "head")
    return MODES if family in DECODERS else MODES[:3]


def check(card: ModelCard, parallel: Mapping[str, int | str], mode: str) -> str:
    """Return the form; UsageError, with what is legal, where it cannot be."""
    form = str(parallel.get("form", "none"))
    if mode not in modes(card.family):
        raise UsageError(f"'{card.family}' has no mode '{mode}'", remedy=f"one of: {', '.join(modes(card.family))}")
    if form not in forms(card.family, mode):
        raise UsageError(
            f"'{card.family}' does not go with '{form}' in mode '{mode}'",
            remedy=f"one of: {', '.join(forms(card.family, mode))}",
        )
    return form


__all__ = ["FAMILIES", "FORMS", "MIXTURES", "check", "forms", "modes"]
