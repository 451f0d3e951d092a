"""GPT-2 of the transformers library, from dimensions."""

from __future__ import annotations

from torch import nn

from ringwright_lab.models.language import logits, loss, quiet, tokens

__all__ = ["blocks", "build", "head", "logits", "loss", "tokens"]


def build(dims: dict[str, int]) -> nn.Module:
    """Return the model with random weights; nothing is dropped out, so that runs can be compared."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=dims["layers"],
        n_embd=dims["hidden"],
        n_head=dims["heads"],
        vocab_size=dims["vocabulary"],
        n_positions=dims["positions"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return quiet(lambda: GPT2LMHeadModel(config))


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks that repeat."""
    return list(model.transformer.h)


def head(model: nn.Module) -> list[nn.Module]:
    """Return what is trained when only the head is: here the last norm, for the matrix is the embedding's."""
    return [model.transformer.ln_f]
