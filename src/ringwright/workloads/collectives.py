"""Which collectives one rank of a job issues in an iteration, in closed form, for any legal combination of parallel forms.

Sizes are the size column of nccl-tests. ``T`` is the tokens of a tensor parallel group, ``h`` the hidden width, ``m`` the
micro-batches; what a block issues per micro-batch is in the functions below. Scalars (the loss, the norm of the gradients) are
left out, and so is the module of DeepSeek-V3 that predicts one more token.

Source: Megatron-LM (tensor, sequence, pipeline, context and expert parallelism, distributed optimiser and its buckets), PyTorch's
DistributedDataParallel for models of images, and its ``fully_shard`` for zero3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ringwright.workloads.expected.row import ExpectedRow, gathered, merged, scattered, whole
from ringwright.workloads.flops import attention_widths, padded_vocabulary
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parts import ModelBlock
from ringwright.workloads.replicas import gradients, sharded
from ringwright.workloads.shares import cut, held, shares, tied_matrix, uncut_elements
from ringwright.workloads.step import StepSpec, refuse

ROLES = ("tp", "cp", "ep", "pp", "dp", "edp", "embedding")
COUNT_BYTES, LOSS_BYTES = 4, 4


def collectives(card: ModelCard, step: StepSpec) -> list[ExpectedRow]:
    """Return what one rank issues, as rows with role (tp, cp, pp, ep, dp, edp, embedding), op, size_bytes and count.

    ``edp`` is the group of ranks with the same experts. Raises UsageError where the model cannot be shared out like that.
    """
    refuse(card, step)
    parallel = step.parallel
    blocks = held(card, parallel, step.place)
    mine = [cut(block, parallel) for block in blocks]
    rows = [
        replace(row, count=row.count * step.micro_batches)
        for block in blocks
        for row in (*_tensor(block, card, step), *_context(block, card, step), *_experts(block, card, step))
    ]
    rows += [replace(row, count=row.count * step.micro_batches) for row in _ends(card, step)]
    rows += _pipeline(card, step)
    if parallel.zero == 3:
        rows += sharded(mine, step)
    elif step.trains:
        rows += gradients(card, mine, step)
    if step.trains:
        rows += _shared(card, mine, step)
    return merged(row for row in rows if row.size_bytes)


def totals(rows: list[ExpectedRow]) -> list[dict[str, int | str]]:
    """Return the rows as objects {role, op, count, bytes}, phases added up, largest traffic first in each role."""
    sums: dict[tuple[str, str, int], int] = {}
    for row in rows:
        key = (row.role, row.op, row.size_bytes)
        sums[key] = sums.get(key, 0) + row.count
    order = sorted(sums, key=lambda key: (ROLES.index(key[0]), -key[2] * sums[key], key[1]))
    return [{"role": role, "op": op, "count": sums[role, op, size], "bytes": size} for role, op, size in order]


# ------------------------------------------------------------------------------------------------ per block, micro-batch
def _tensor(block: ModelBlock, card: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the sums around cut matrices: whole activations of T x h, gathered and scattered with sequence parallelism.

    Each pair of cut matrices is entered once and left once; experts that are shared out are entered by all-to-all instead.
    Backwards the input is gathered once more, for the gradient of the weights.
    """
    parallel = step.parallel
    left = sum(layer.cut == "rows" and not layer.expert for layer in block.layers)
    if parallel.tp == 1 or block.unit != "block":
        return
    if block.moe and parallel.etp > 1:
        yield from _cut_experts(card, step)
    entered = left + any(layer.name == "cross_k" for layer in block.layers)
    size = step.width_bytes * step.load.tokens * card.dims["hidden"]
    for phase in step.forwards:
        if parallel.sp:
            yield gathered("each", phase, "tp", size, parallel.tp, entered)
            yield scattered("each", phase, "tp", size, left)
        else:
            yield whole("each", phase, "tp", "all-reduce", size, left)
    if step.trains and parallel.sp:
        yield gathered("each", "backward", "tp", size, parallel.tp, entered + left)
        yield scattered("each", "backward", "tp", size, entered)
    elif step.trains:
        yield whole("each", "backward", "tp", "all-reduce", size, entered)


def _cut_experts(card: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield how tokens come to experts that are cut and not shared out: each as often as it has experts, with a cut sequence."""
    parallel = step.parallel
    size = step.width_bytes * step.load.tokens * card.dims["hidden"]
    for phase in (*step.forwards, *(["backward"] if step.trains else [])):
        if parallel.sp:
            yield gathered("each", phase, "tp", size * card.dims["active"], parallel.tp)
            yield scattered("each", phase, "tp", size * card.dims["active"])
        else:
            yield whole("each", phase, "tp", "all-reduce", size)


def _context(block: ModelBlock, card: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the ring of keys and values: cp - 1 steps forwards, twice as many backwards, for their gradients travel too."""
    steps = step.parallel.cp - 1
    if not steps or block.unit != "block":
        return
    size = step.width_bytes * step.load.tokens * attention_widths(card.dims)[2] // step.parallel.tp
    turns = [(phase, steps) for phase in step.forwards] + [("backward", 2 * steps)] * step.trains
    for phase, count in turns:
        yield whole("each", phase, "cp", "send", size, count)
        yield ExpectedRow("each", phase, "cp", "recv", size, 0, count)


def _experts(block: ModelBlock, card: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the way to the experts and back, and before it how many tokens go where (4 bytes an expert and rank)."""
    parallel = step.parallel
    if parallel.ep == 1 or not block.moe:
        return
    size = step.load.own_tokens * card.dims["active"] * card.dims["hidden"] * step.width_bytes
    for phase in step.forwards:
        counts = COUNT_BYTES * card.dims["experts"] * parallel.ep
        yield gathered("each", phase, "ep", counts, parallel.ep)
        yield whole("each", phase, "ep", "all-to-all", size, 2)
    if step.trains:
        yield whole("each", "backward", "ep", "all-to-all", size, 2)


def _ends(card: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield what embedding and logits need where the vocabulary is cut: in the first stage, and in the last."""
    parallel, load = step.parallel, step.load
    if parallel.tp == 1:
        return
    size = step.width_bytes * load.tokens * card.dims["hidden"]
    forward = step.forwards[0]
    if step.place == 0:
        lookups = 2 if card.family == "transformer" else 1
        if parallel.sp:
            yield scattered("each", forward, "tp", size, lookups)
            if step.trains:
                yield gathered("each", "backward", "tp", size, parallel.tp, lookups)
        else:
            yield whole("each", forward, "tp", "all-reduce", size, lookups)
    if step.place != parallel.pp - 1 or card.dims.get("pooler"):
        return
    if parallel.sp:
        yield gathered("each", forward, "tp", size, parallel.tp)
    if not step.trains:
        words = padded_vocabulary(card.dims["vocabulary"], parallel.tp)
        yield gathered("each", forward, "tp", step.width_bytes * step.micro_batch_size * words, parallel.tp)
        return
    yield whole("each", forward, "tp", "all-reduce", LOSS_BYTES * load.tokens, 3)
    if parallel.sp:
        yield scattered("each", "backward", "tp", size)
    else:
        yield whole("each", "backward", "tp", "all-reduce", size)


# ------------------------------------------------------------------------------------------------------- per iteration
def _pipeline(card: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the messages between chunks: each chunk of the model but the last hands its output on, m times.

    With scatter/gather each tensor parallel rank sends its part, and the parts are gathered where they arrive.
    """
    parallel = step.parallel
    if parallel.pp == 1:
        return
    size = step.width_bytes * step.load.sent_tokens * card.dims["hidden"]
    handed = step.micro_batches * (parallel.vp - (step.place == parallel.pp - 1))
    taken = step.micro_batches * (parallel.vp - (step.place == 0))
    turns = [(step.forwards[0], handed, taken)] + [("backward", taken, handed)] * step.trains
    for phase, sent, received in turns:
        yield whole("each", phase, "pp", "send", size, sent)
        yield ExpectedRow("each", phase, "pp", "recv", size, 0, received)
        if parallel.sg:
            yield gathered("each", phase, "tp", size * parallel.tp, parallel.tp, received)


def _shared(card: ModelCard, blocks: list[ModelBlock], step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the sums of gradients that two places share: what is not cut, and a matrix that is embedding and logits."""
    parallel = step.parallel
    if parallel.sp and parallel.tp > 1:
        yield whole("each", "backward", "tp", "all-reduce", step.gradient_bytes * uncut_elements(blocks))
    tied = tied_matrix(card)
    if tied and parallel.pp > 1 and step.place in (0, parallel.pp - 1):
        number = sum(math.prod(shape) for shape in shares(tied, parallel))
        yield whole("each", "backward", "embedding", "all-reduce", step.gradient_bytes * number)
