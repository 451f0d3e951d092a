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
from ringwright.workloads.tables import ROLE, exchanged_bytes

ROLES = ("tp", "cp", "ep", "mp", "pp", "dp", "edp", "embedding")
COUNT_BYTES, LOSS_BYTES = 4, 4


def collectives(model: ModelCard, step: StepSpec) -> list[ExpectedRow]:
    """Return what one rank issues, as rows with role (tp, cp, pp, ep, mp, dp, edp, embedding), op, size_bytes and count.

    ``edp`` is the group of ranks with the same experts. Raises UsageError where the model cannot be shared out like that.
    """
    return merged(replace(row, layer="") for row in by_layer(model, step))


def by_layer(model: ModelCard, step: StepSpec) -> list[ExpectedRow]:
    """Return the same rows layer by layer; those without a layer are of several (buckets) or lie between stages."""
    refuse(model, step)
    parallel = step.parallel
    blocks = held(model, parallel, step.place)
    mine = [cut(block, parallel) for block in blocks]
    rows = [
        replace(row, count=row.count * step.micro_batches, layer=block.name)
        for block in blocks
        for row in (*_tensor(block, model, step), *_context(block, model, step), *_experts(block, model, step))
    ]
    rows += [replace(row, count=row.count * step.micro_batches) for row in _ends(model, step)]
    rows += [*_pipeline(model, step), *_vectors(model, step)]
    if parallel.zero == 3:
        rows += sharded(mine, step)
    elif step.trains:
        rows += gradients(model, mine, step)
    if step.trains:
        rows += _shared(model, mine, step)
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
def _tensor(block: ModelBlock, model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the sums around cut matrices: whole activations of T x h, gathered and scattered with sequence parallelism.

    Each pair of cut matrices is entered once and left once; experts that are shared out are entered by all-to-all instead.
    Backwards the input is gathered once more, for the gradient of the weights.
    """
    parallel = step.parallel
    left = sum(layer.cut == "rows" and not layer.expert for layer in block.layers)
    if parallel.tp == 1 or block.unit != "block":
        return
    if block.moe and parallel.etp > 1:
        yield from _cut_experts(model, step)
    entered = left + any(layer.name == "cross_k" for layer in block.layers)
    size = step.width_bytes * step.load.tokens * model.dims["hidden"]
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


def _cut_experts(model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield how tokens come to experts that are cut and not shared out: each as often as it has experts, with a cut sequence."""
    parallel = step.parallel
    size = step.width_bytes * step.load.tokens * model.dims["hidden"]
    for phase in (*step.forwards, *(["backward"] if step.trains else [])):
        if parallel.sp:
            yield gathered("each", phase, "tp", size * model.dims["active"], parallel.tp)
            yield scattered("each", phase, "tp", size * model.dims["active"])
        else:
            yield whole("each", phase, "tp", "all-reduce", size)


def _context(block: ModelBlock, model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the ring of keys and values: cp - 1 steps forwards, twice as many backwards, for their gradients travel too."""
    steps = step.parallel.cp - 1
    if not steps or block.unit != "block":
        return
    size = step.width_bytes * step.load.tokens * attention_widths(model.dims)[2] // step.parallel.tp
    turns = [(phase, steps) for phase in step.forwards] + [("backward", 2 * steps)] * step.trains
    for phase, count in turns:
        yield whole("each", phase, "cp", "send", size, count)
        yield ExpectedRow("each", phase, "cp", "recv", size, 0, count)


def _experts(block: ModelBlock, model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the way to the experts and back, and before it how many tokens go where (4 bytes an expert and rank)."""
    parallel = step.parallel
    if parallel.ep == 1 or not block.moe:
        return
    size = step.load.own_tokens * model.dims["active"] * model.dims["hidden"] * step.width_bytes
    for phase in step.forwards:
        counts = COUNT_BYTES * model.dims["experts"] * parallel.ep
        yield gathered("each", phase, "ep", counts, parallel.ep)
        yield whole("each", phase, "ep", "all-to-all", size, 2)
    if step.trains:
        yield whole("each", "backward", "ep", "all-to-all", size, 2)


def _ends(model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield what embedding and logits need where the vocabulary is cut: in the first stage, and in the last."""
    parallel = step.parallel
    if parallel.tp == 1 or not model.cuts_words:
        return
    if step.place == 0:
        yield from (replace(row, layer="embedding") for row in _lookup(model, step))
    if step.place == parallel.pp - 1 and not model.dims.get("pooler"):
        yield from (replace(row, layer="logits") for row in _logits(model, step))


def _lookup(model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    size = step.width_bytes * step.load.tokens * model.dims["hidden"]
    lookups = 2 if model.family == "transformer" else 1
    if step.parallel.sp:
        yield scattered("each", step.forwards[0], "tp", size, lookups)
        if step.trains:
            yield gathered("each", "backward", "tp", size, step.parallel.tp, lookups)
    else:
        yield whole("each", step.forwards[0], "tp", "all-reduce", size, lookups)


def _logits(model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    parallel, load, forward = step.parallel, step.load, step.forwards[0]
    size = step.width_bytes * load.tokens * model.dims["hidden"]
    if parallel.sp:
        yield gathered("each", forward, "tp", size, parallel.tp)
    if not step.trains:
        words = padded_vocabulary(model.dims["vocabulary"], parallel.tp)
        yield gathered("each", forward, "tp", step.width_bytes * step.micro_batch_size * words, parallel.tp)
        return
    yield whole("each", forward, "tp", "all-reduce", LOSS_BYTES * load.tokens, 3)
    if parallel.sp:
        yield scattered("each", "backward", "tp", size)
    else:
        yield whole("each", "backward", "tp", "all-reduce", size)


# ------------------------------------------------------------------------------------------------------- per iteration
def _pipeline(model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the messages between chunks: each chunk of the model but the last hands its output on, m times.

    With scatter/gather each tensor parallel rank sends its part, and the parts are gathered where they arrive.
    """
    parallel = step.parallel
    if parallel.pp == 1:
        return
    size = step.width_bytes * step.load.sent_tokens * model.dims["hidden"]
    handed = step.micro_batches * (parallel.vp - (step.place == parallel.pp - 1))
    taken = step.micro_batches * (parallel.vp - (step.place == 0))
    turns = [(step.forwards[0], handed, taken)] + [("backward", taken, handed)] * step.trains
    for phase, sent, received in turns:
        yield whole("each", phase, "pp", "send", size, sent)
        yield ExpectedRow("each", phase, "pp", "recv", size, 0, received)
        if parallel.sg:
            yield gathered("each", phase, "tp", size * parallel.tp, parallel.tp, received)


def _vectors(model: ModelCard, step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the all-to-all of vectors that were looked up for other ranks' samples, and that of their gradients."""
    if not model.has_tables or step.parallel.dp == 1:
        return
    size = exchanged_bytes(model, step.load)
    for phase in ("forward", "backward"):
        yield replace(whole("each", phase, ROLE, "all-to-all", size, step.micro_batches), layer="tables")


def _shared(model: ModelCard, blocks: list[ModelBlock], step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the sums of gradients that two places share: what is not cut, and a matrix that is embedding and logits."""
    parallel = step.parallel
    if parallel.sp and parallel.tp > 1:
        yield whole("each", "backward", "tp", "all-reduce", step.gradient_bytes * uncut_elements(blocks))
    tied = tied_matrix(model)
    if tied and parallel.pp > 1 and step.place in (0, parallel.pp - 1):
        number = sum(math.prod(shape) for shape in shares(tied, parallel))
        row = whole("each", "backward", "embedding", "all-reduce", step.gradient_bytes * number)
        yield replace(row, layer="embedding" if step.place == 0 else "logits")
