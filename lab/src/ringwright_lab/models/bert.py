"""BERT with its masked-word head of the transformers library, from dimensions."""

from __future__ import annotations

import torch
from torch import nn

from ringwright_lab.models.language import loss, quiet, tokens

__all__ = ["blocks", "build", "head", "logits", "loss", "tokens"]


def build(dims: dict[str, int]) -> nn.Module:
    """Return the model with random weights; nothing is dropped out, so that runs can be compared."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        num_hidden_layers=dims["layers"],
        hidden_size=dims["hidden"],
        intermediate_size=dims["intermediate"],
        num_attention_heads=dims["heads"],
        vocab_size=dims["vocabulary"],
        max_position_embeddings=dims["positions"],
        type_vocab_size=dims["types"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return quiet(lambda: BertForMaskedLM(config))


def logits(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return the logits (batch, sequence, vocabulary)."""
    output: torch.Tensor = model(input_ids=inputs).logits
    return output


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks that repeat."""
    return list(model.bert.encoder.layer)


def head(model: nn.Module) -> list[nn.Module]:
    """Return what is trained when only the head is: its transform, for the matrix is the embedding's."""
    return [model.cls.predictions.transform]
