"""Llama of the transformers library, from dimensions."""

from __future__ import annotations

from typing import Any

from torch import nn

from ringwright_lab.models.language import logits, loss, quiet, tokens

__all__ = ["blocks", "build", "head", "logits", "loss", "tokens"]


def decoder(dims: dict[str, int]) -> dict[str, Any]:
    """Return what the configurations of all such decoders say alike."""
    return {
        "num_hidden_layers": dims["layers"],
        "hidden_size": dims["hidden"],
        "intermediate_size": dims["intermediate"],
        "num_attention_heads": dims["heads"],
        "vocab_size": dims["vocabulary"],
        "bos_token_id": None,
        "max_position_embeddings": dims["positions"],
        "tie_word_embeddings": False,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def build(dims: dict[str, int]) -> nn.Module:
    """Return the model with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**decoder(dims), num_key_value_heads=dims["kv_heads"], head_dim=dims["head"])
    return quiet(lambda: LlamaForCausalLM(config))


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks that repeat."""
    return list(model.model.layers)


def head(model: nn.Module) -> list[nn.Module]:
    """Return what is trained when only the head is."""
    return [model.lm_head]
