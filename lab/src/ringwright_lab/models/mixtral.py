"""Mixtral of the transformers library, from dimensions."""

from __future__ import annotations

from torch import nn

from ringwright_lab.models.language import logits, loss, quiet, tokens
from ringwright_lab.models.llama import blocks, decoder, head

__all__ = ["blocks", "build", "head", "logits", "loss", "tokens"]


def build(dims: dict[str, int]) -> nn.Module:
    """Return the model with random weights."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        **decoder(dims),
        num_key_value_heads=dims["kv_heads"],
        head_dim=dims["head"],
        num_local_experts=dims["experts"],
        num_experts_per_tok=dims["active"],
        sliding_window=None,
    )
    return quiet(lambda: MixtralForCausalLM(config))
