"""What all language models share here: random tokens, logits, the loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ringwright_lab.models.spec import ExperimentSpec

Batch = tuple[torch.Tensor, torch.Tensor]


def tokens(spec: ExperimentSpec, step: int, part: int, parts: int) -> Batch:
    """Return part ``part`` of the random inputs and targets of a step, both of shape (batch, sequence).

    The parts of one step together are the same tokens however many parts there are, as long as parts x batch is.
    """
    if spec.fake is not None:
        zeros = torch.zeros(spec.batch, spec.sequence, dtype=torch.long)
        return zeros, zeros
    source = torch.Generator().manual_seed(1000 * spec.seed + step)
    shape = (2, parts * spec.batch, spec.sequence)
    drawn = torch.randint(0, spec.dims["vocabulary"], shape, generator=source)
    mine = drawn[:, part * spec.batch : (part + 1) * spec.batch]
    return mine[0].contiguous(), mine[1].contiguous()


def logits(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return the logits of a model of the transformers library, (batch, sequence, vocabulary)."""
    output: torch.Tensor = model(input_ids=inputs, use_cache=False).logits
    return output


def answering(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what gives the logits (batch, vocabulary) after the last of more and more tokens, their keys and values kept."""
    from transformers import DynamicCache

    cache = DynamicCache()

    def answer(inputs: torch.Tensor) -> torch.Tensor:
        output = model(input_ids=inputs, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        last: torch.Tensor = output[:, -1]
        return last

    return answer


def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy."""
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def quiet(make: Callable[[], nn.Module]) -> nn.Module:
    """Build a model of the transformers library without its remarks and without looking for files elsewhere."""
    import os

    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.utils import logging

    logging.set_verbosity_error()
    return make()
