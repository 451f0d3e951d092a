"""Pipeline parallel training after PyTorch's 1F1B schedule, and serving stage by stage.

A stage sends each micro-batch's hidden states to the next one and their gradients to the one before. Before its first step
torch 2.13 agrees on whether shapes are known: a number of 4 bytes goes from the first stage to the last and back. In serving
each further token (int64) is sent from the last stage to the first before its turn begins.
"""

from __future__ import annotations

from ringwright.ground.errors import UsageError
from ringwright.workloads.expected.row import DTYPE_BYTES, ExpectedRow, merged, whole
from ringwright.workloads.model_cards import ModelCard

TOKEN_BYTES = 8
VOTE_BYTES = 4


def check(card: ModelCard, stages: int, batch: int, micro_batches: int) -> None:
    """Raise UsageError where blocks, sequences or micro-batches do not fill the stages."""
    if stages > card.dims["layers"] or batch % micro_batches or micro_batches < stages:
        raise UsageError(
            f"{card.dims['layers']} blocks, {batch} sequences and {micro_batches} micro-batches do not fill {stages} stages",
            remedy="a block a stage, a micro-batch a stage, and micro-batches that divide the sequences",
        )


def received(when: str, phase: str, size_bytes: int, count: int = 1) -> ExpectedRow:
    """Return messages that come in."""
    return ExpectedRow(when, phase, "pp", "recv", size_bytes, 0, count)


def rows(
    card: ModelCard, stages: int, stage: int, mode: str, batch: int, sequence: int, micro_batches: int, dtype: str
) -> list[ExpectedRow]:
    """Return what the rank of ``stage`` issues."""
    check(card, stages, batch, micro_batches)
    if mode == "inference":
        return _served(card, stages, stage, batch, sequence, dtype)
    size = batch // micro_batches * sequence * card.dims["hidden"] * DTYPE_BYTES[dtype]
    expected = []
    for _ in range((stage > 0) + (stage < stages - 1)):  # one neighbour, or two
        for when, bytes_, count in (("first", VOTE_BYTES, 1), ("each", size, micro_batches)):
            expected += [whole(when, "pipeline", "pp", "send", bytes_, count)]
            expected += [received(when, "pipeline", bytes_, count)]
    return merged(expected)


def _served(card: ModelCard, stages: int, stage: int, batch: int, sequence: int, dtype: str) -> list[ExpectedRow]:
    expected = []
    for when, tokens in (("prefill", batch * sequence), ("decode", batch)):
        size = tokens * card.dims["hidden"] * DTYPE_BYTES[dtype]
        if stage:
            expected.append(received(when, when, size))
        elif when == "decode":
            expected.append(received(when, when, TOKEN_BYTES * batch))
        if stage < stages - 1:
            expected.append(whole(when, when, "pp", "send", size))
        elif when == "decode":
            expected.append(whole(when, when, "pp", "send", TOKEN_BYTES * batch))
    return expected
