"""What each kind of layer reads, writes, and keeps for backward.

Kept are: what a norm normalises, the input of each matrix (once for those that read the same), queries, keys and values with
what attention keeps of its scores, what goes into an activation function, the mask of each dropout (one byte an element), and
the probabilities of the words in 4 bytes. Copies in fewer than 16 bits are not counted.

Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (arXiv 2205.05198), section 4, tensor by
tensor; what other models have in their place is what their autograd functions save in Megatron-LM.
"""

from __future__ import annotations

from ringwright.model.values import Value
from ringwright.workloads import recomputed
from ringwright.workloads.collectives import LOSS_BYTES
from ringwright.workloads.dataflow import MASK_BYTES, Pass, SegmentFlow
from ringwright.workloads.flops import attention_widths
from ringwright.workloads.layer_work import LayerWork
from ringwright.workloads.special_values import (
    CONDITIONS,
    PLAIN_NORM,
    TOKEN_BYTES,
    patches,
    plain_norm,
    scan,
    table,
    taps,
)
from ringwright.workloads.tables import CUT
from ringwright.workloads.tensors import ALL, ANSWERS, EXPERTS, IMAGES, OWN, ROUTED, Tensors

SCALE_BYTES, PROBABILITY_BYTES = 4, 4
INNER_NORMS = ("q_norm", "k_norm", "kv_norm")
POST_NORM = ("bert", "transformer")
LOSS_SUMS = 3  # the largest logit, the sum over all words, the logit of the right one


def layer(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """Let a layer take its part in a pass."""
    if line.tensors.model.takes_samples:
        _image(line, flow, work)
    elif work.kind in _KINDS:
        _KINDS[work.kind](line, flow, work)
    elif work.cut == "rows":
        _leaving(line, flow, work)
    else:
        _entering(line, flow, work)


def _lookup(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    if work.name in ("places", "types", "labels"):
        return  # added to the words
    tokens = [line.new(flow, "tokens", ALL, "token", 1, each=TOKEN_BYTES, dtype="int64")]
    partial = line.tensors.tp if work.cut else ()
    line.pending.append(line.new(flow, "embedded", ALL, "hidden", line.hidden, partial=partial))
    if line.tensors.model.family == "transformer":
        tokens.append(line.new(flow, "target_tokens", ALL, "token", 1, each=TOKEN_BYTES, dtype="int64"))
        line.targets = line.new(flow, "targets", ALL, "hidden", line.hidden, partial=partial)
    flow.inputs += tokens


def _norm(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    if not work.moved_bytes:
        return  # biases of a head, sinks of attention
    if flow.item.block == "embedding" and line.tensors.tp:
        return  # it stands before the sum over parts of the vocabulary; what is behind that is kept
    if work.name in INNER_NORMS:
        _inner_norm(line, flow, work)
        return
    if line.pending:
        line.add(flow)
    flow.normed = True
    flow.read(line.stream)
    flow.inner.append(line.stream)
    line.current = line.branch = line.new(flow, work.name, OWN, "hidden", line.hidden)
    if line.tensors.model.family in POST_NORM:
        line.stream = line.current


def _inner_norm(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """Norms of queries and keys, or of their latent form, keep their input; of the latent form, what follows is an input, too."""
    dims = line.tensors.model.dims
    if "q_rank" in dims:
        width = dims["q_rank"] if work.name == "q_norm" else dims["kv_rank"]
        flow.inner.append(line.new(flow, f"{work.name}_input", OWN, "latent", width))
        line.current = line.new(flow, work.name, OWN, "latent", width)
        return
    queries, _, exchanged = attention_widths(dims)
    width = (queries if work.name == "q_norm" else exchanged // 2) // line.tensors.step.parallel.tp
    flow.inner.append(line.new(flow, f"{work.name}_input", ALL, "heads", width, cut=line.tensors.tp))


def _entering(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """A matrix whose outputs are cut, or that is whole."""
    name = work.name.removeprefix("cross_").removeprefix("shared_")
    if name in CONDITIONS:
        flow.inputs.append(line.new(flow, f"{name}_input", ANSWERS, "condition", work.gemms[0].k))
        return
    if name in ("qkv", "up", "pixels") and line.tensors.model.family in PLAIN_NORM:
        plain_norm(line, flow, name)
    if name == "kv_down":
        line.current = line.branch
    elif work.name == "cross_k" and line.tensors.tp == ():
        line.current = line.encoded
    flow.read(line.current)
    if line.current not in flow.inputs:
        flow.inputs.append(line.current)
    width, axes = work.gemms[0].n, line.tensors.tp if work.cut == "columns" else ()
    rows = ALL if work.cut == "columns" else OWN
    line.result(flow, rows, width, axes)
    if name in ("up", "gate"):
        line.middle.append(line.new(flow, name, rows, "middle", width, cut=axes))
    elif name == "transform":
        flow.inner.append(line.new(flow, name, OWN, "hidden", width))
        line.stream = line.current = line.new(flow, "transformed", OWN, "hidden", width)


def _attention(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    queries, values, exchanged = attention_widths(line.tensors.model.dims)
    tp, axes = line.tensors.step.parallel.tp, line.tensors.tp
    flow.inner.append(line.new(flow, "queries_keys_values", ALL, "heads", (queries + exchanged) // tp, cut=axes))
    line.current = line.new(flow, "attention", ALL, "heads", values // tp, cut=axes)
    scores(line, flow, work)


def scores(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """Keep what attention gave, and of its scores a number a row where they stay on chip, else softmax, mask and what it left.

    With selective recomputation nothing of the scores is kept.
    """
    flow.inner.append(line.current)
    step, axes = line.tensors.step, line.tensors.tp
    if step.recompute == "selective" or work.scores is None or not step.trains:
        return
    heads = line.tensors.model.dims["heads"] // step.parallel.tp
    if line.is_flash:
        flow.inner.append(line.new(flow, "row_sums", ALL, "heads", heads, each=SCALE_BYTES, cut=axes))
        return
    each = 2 * step.width_bytes + MASK_BYTES if line.drops else step.width_bytes
    flow.inner.append(line.new(flow, "scores", ALL, "scores", work.scores.n * heads, each=each, cut=axes))


def ring_heads(line: Pass, flow: SegmentFlow) -> None:
    """Write queries, and keys and values apart, where these go round a ring of ranks."""
    queries, _, exchanged = attention_widths(line.tensors.model.dims)
    tp, axes = line.tensors.step.parallel.tp, line.tensors.tp
    line.ring = [
        line.new(flow, "queries", ALL, "heads", queries // tp, cut=axes),
        line.new(flow, "keys_values", ALL, "heads", exchanged // tp, cut=axes),
    ]
    line.turned = ""


def ring_turn(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """Attention to one rank's keys and values: this rank's own are kept, not what comes round."""
    item, (queries, own, *others) = flow.item, line.ring
    there = [own, *others][item.turn]
    flow.read(queries, there, line.turned)
    flow.plain |= {queries, there}
    width = attention_widths(line.tensors.model.dims)[1] // line.tensors.step.parallel.tp
    is_last = item.turn == item.turns - 1
    label = "attention" if is_last else "sum"
    line.turned = line.new(flow, label, ALL, "heads", width, cut=line.tensors.tp)
    if is_last:
        flow.inner += [queries, own]
        line.current = line.turned
        scores(line, flow, work)


def _leaving(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """A matrix whose inputs are cut: what attention gave, or what the activation function makes of its own inputs."""
    axes = line.tensors.tp
    if line.middle:
        flow.inner += line.middle
        line.middle = []
        line.current = line.new(flow, f"{work.name}_input", ALL, "middle", work.gemms[0].k, cut=axes)
    flow.read(line.current)
    flow.inputs.append(line.current)
    line.pending.append(line.new(flow, f"{work.name}_output", ALL, "hidden", line.hidden, partial=axes))
    line.current = line.branch  # shared experts read what the routed ones read


def _router(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    flow.read(line.current)
    if line.current not in flow.inputs:
        flow.inputs.append(line.current)
    flow.inner.append(line.new(flow, "router", OWN, "experts of a token", work.gemms[0].n, each=SCALE_BYTES))
    line.routed = line.new(flow, "routed", ROUTED, "hidden", line.hidden)


def _experts(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    parallel, (gemm,) = line.tensors.step.parallel, work.gemms
    axes = line.tensors.tp if parallel.etp > 1 else ()
    if work.cut == "columns":
        flow.read(line.routed)
        flow.inputs.append(line.routed)
        line.result(flow, EXPERTS, gemm.n, axes)
        flow.inner.append(line.new(flow, "experts_middle", EXPERTS, "middle", gemm.n, cut=axes))
        return
    flow.inputs.append(line.new(flow, f"{work.name}_input", EXPERTS, "middle", gemm.k, cut=axes))
    rows = ALL if axes and not parallel.sp else EXPERTS
    line.pending.append(line.new(flow, f"{work.name}_output", rows, "hidden", line.hidden, partial=axes))
    line.current = line.branch


def _logits(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    flow.read(line.current)
    flow.inputs.append(line.current)
    width, axes = work.gemms[0].n, line.tensors.tp
    if not line.tensors.step.trains:
        line.scalar = line.new(flow, "logits", ANSWERS, "words", width, cut=axes)
        return
    line.result(flow, ALL, width, axes)
    each, step = PROBABILITY_BYTES, line.tensors.step
    if (
        step.recompute == recomputed.OPERATIONS
    ):  # the last copy turns into the gradient of the logits, which is counted by itself
        each = recomputed.LOSS_COPIES * PROBABILITY_BYTES - step.width_bytes
    flow.inner.append(line.new(flow, "probabilities", ALL, "words", width, each=each, cut=axes))
    loss(line, flow, 0)


def loss(line: Pass, flow: SegmentFlow, number: int) -> None:
    """Write the next number of each token that the ranks with the parts of a cut vocabulary add up."""
    if line.scalar:
        flow.read(line.scalar)
        flow.plain.add(line.scalar)
    line.scalar = ""
    if line.tensors.tp and number < LOSS_SUMS and line.tensors.step.trains:
        line.scalar = line.new(flow, "loss", ALL, "token", 1, each=LOSS_BYTES, partial=line.tensors.tp)


def _image(line: Pass, flow: SegmentFlow, work: LayerWork) -> None:
    """Images: what a convolution, a norm or a matrix reads; activation functions work in place."""
    step = line.tensors.step
    if work.cut == CUT:
        table(line, flow, work)
        return
    flow.read(line.current, line.routed if work.kind == "interaction" else "")
    read = out = work.moved_bytes // (2 * step.width_bytes)
    if work.gemms:
        (gemm,) = work.gemms
        out = gemm.m * gemm.n * gemm.times
        held = 0 if work.kind == "interaction" else gemm.n * gemm.k
        read = work.moved_bytes // step.width_bytes - held - out
    if not read:
        return
    pixels = -(-read // step.micro_batch_size)
    flow.inputs.append(line.new(flow, f"{work.name}_input", IMAGES, "pixels", pixels))
    line.current = line.new(flow, f"{work.name}_output", IMAGES, "pixels", -(-out // step.micro_batch_size))


def cache(tensors: Tensors, of: str, block: str) -> Value:
    """Return what one block looks at when a model answers: keys and values of all sequences, their latent form, or a state."""
    dims, step = tensors.model.dims, tensors.step
    if "state" in dims:
        size = step.micro_batches * step.micro_batch_size * dims["inner"] * (dims["state"] + dims["taps"])
        return Value(f"{of}.{block}.cache", of, size * step.width_bytes, kind="buffer", per="step")
    latent = "kv_rank" in dims
    width = dims["kv_rank"] + dims["rope"] if latent else attention_widths(dims)[2] // step.parallel.tp
    tokens = step.micro_batches * step.micro_batch_size * step.sequence // step.parallel.cp
    return Value(f"{of}.{block}.cache", of, tokens * width * step.width_bytes, kind="buffer", per="step")


_KINDS = {
    "lookup": _lookup,
    "norm": _norm,
    "attention": _attention,
    "router": _router,
    "experts": _experts,
    "logits": _logits,
    "patches": patches,
    "taps": taps,
    "scan": scan,
}
