"""The families by name; the module of one is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

import torch
from torch import nn

from ringwright.ground.errors import MissingExtraError, UsageError
from ringwright_lab.models.spec import ExperimentSpec

NAMES = ("gpt2", "llama", "bert", "mixtral", "deepseek-v3", "resnet", "vgg")
FROM_LIBRARY = ("gpt2", "llama", "bert", "mixtral", "deepseek-v3")


class ModelFamily(Protocol):
    """What the module of a family offers."""

    def build(self, dims: dict[str, int]) -> nn.Module:
        """Return the model with random weights."""
        ...

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """Return the blocks that repeat."""
        ...

    def head(self, model: nn.Module) -> list[nn.Module]:
        """Return what is trained when only the head is."""
        ...

    def tokens(self, spec: ExperimentSpec, step: int, part: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of a step."""
        ...

    def logits(self, model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        ...

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss."""
        ...


def family(name: str) -> ModelFamily:
    """Return the module of a family; UsageError for an unknown one, MissingExtraError without its library."""
    if name not in NAMES:
        raise UsageError(f"'{name}' is not a model family", remedy=f"one of: {', '.join(NAMES)}")
    if name in FROM_LIBRARY:
        try:
            import_module("transformers")
        except ImportError:
            raise MissingExtraError(f"'{name}' comes from the transformers library", extra="models") from None
    return cast("ModelFamily", import_module(f"ringwright_lab.models.{name.replace('-', '_')}"))


def without_memory(name: str, dims: dict[str, int]) -> nn.Module:
    """Return the model of a family on PyTorch's meta device: its parameters have shapes and no memory."""
    with torch.device("meta"):
        return family(name).build(dims)
