"""The tensors of a forward pass, segment by segment and exchange by exchange."""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.model.values import SLICED, Value
from ringwright.workloads import recomputed
from ringwright.workloads.dataflow import Exchanged, Pass, SegmentFlow
from ringwright.workloads.layer_values import layer, loss, ring_heads, ring_turn
from ringwright.workloads.segments import HANDED, POOLED, TAKEN, Exchange, Item, Segment
from ringwright.workloads.tensors import ALL, ANSWERS, EXPERTS, IMAGES, OWN, PART, ROUTED

Part = SegmentFlow | Exchanged


def walk(line: Pass, items: Sequence[Item]) -> list[Part]:
    """Return the parts of a chain in order; ``line`` ends up behind it."""
    parts: list[Part] = []
    for at, item in enumerate(items):
        following = items[at + 1] if at + 1 < len(items) else None
        if isinstance(item, Exchange):
            parts.append(_exchange(line, item, following))
        else:
            parts.append(_segment(line, item, following))
            _at_an_end(line, parts, following)
    return parts


def _at_an_end(line: Pass, parts: list[Part], following: Item | None) -> None:
    """Let the segments before a gather and behind a scatter read and write what stages send in parts."""
    flow, before = parts[-1], parts[-2] if len(parts) > 1 else None
    assert isinstance(flow, SegmentFlow)  # noqa: S101 - the caller has just made it
    if isinstance(following, Exchange) and _kind(following) == TAKEN:
        flow.read(line.stream)
    if isinstance(before, Exchanged) and _kind(before.item) == HANDED:
        flow.read(before.before)
        flow.plain.add(before.before)  # its gradient is that of the parts, gathered
        flow.writes.append(line.made[before.after])


def _kind(item: Exchange) -> str:
    return item.name.split(".")[-2] if "." in item.name else item.name


def _segment(line: Pass, item: Segment, following: Item | None) -> SegmentFlow:
    flow = SegmentFlow(item)
    if item.block == "decoder0" and not line.encoded:
        line.encoded, line.stream, line.pending = line.stream, "", [line.targets]
    if line.pending and not _is_beside(item):
        line.add(flow)
    if item.turn >= 0:
        ring_turn(line, flow, item.works[0])
        return flow
    for work in item.works:
        layer(line, flow, work)
        flow.noted(work.name)
    if item.turns:
        ring_heads(line, flow)
    if line.pending and not isinstance(following, Exchange) and not _is_beside(following):
        line.add(flow)
    if line.tensors.step.recompute == recomputed.OPERATIONS and line.tensors.step.trains:
        recomputed.left_out(line, flow)
    if item.block == "loss":
        loss(line, flow, int(item.name[-1]) + 1 if item.name[-1].isdigit() else 0)
    return flow


def _exchange(line: Pass, item: Exchange, following: Item | None) -> Exchanged:
    """Let a tensor pass through an exchange."""
    kind = _kind(item)
    if kind == HANDED:
        part = line.name(item.name, "part")
        line.made[part] = reshaped(line, line.made[line.stream], part, PART, keeps_cut=False)
        sent = Exchanged(item, line.stream, part)
        line.stream = line.current = part
    elif kind == POOLED:
        sent = _sent(line, item, line.routed, IMAGES)
        line.routed = sent.after
    elif kind == "before" or item.beside:
        sent = _sent(line, item, line.ring[-1], ALL)
        line.ring.append(sent.after)
    elif kind == "dispatch":
        sent = _sent(line, item, line.routed, EXPERTS)
        line.routed = sent.after
    elif kind == "targets":
        line.encoded, line.stream = line.stream, ""
        sent = _sent(line, item, line.targets, OWN)
        line.pending = [sent.after]
    elif kind.startswith(("loss", "answers")):
        sent = _sent(line, item, line.scalar, ANSWERS if kind == "answers" else ALL)
        line.scalar = sent.after
    elif kind in ("enter", "logits"):
        sent = _entered(line, item, following)
    elif line.pending:  # leave, combine, words
        before = line.pending[-1]
        to = ROUTED if line.made[before].dims[0][0] == "experts" else OWN
        sent = _sent(line, item, before, to)
        line.pending[-1] = sent.after
    else:
        sent = _sent(line, item, line.stream, OWN)
        line.stream = line.current = sent.after
    return sent


def _entered(line: Pass, item: Exchange, following: Item | None) -> Exchanged:
    if line.pending and not _is_beside(following):  # the norm stands behind the exchange: what it is to add is gathered
        before = line.pending[-1]
        if line.made[before].dims[0][0] == "experts":  # tokens that are not back in order yet: the stream alone
            sent = _sent(line, item, line.stream, ALL)
            line.stream = sent.after
        else:
            sent = _sent(line, item, before, ALL)
            line.pending[-1] = sent.after
        return sent
    crosses = isinstance(following, Segment) and bool(following.works) and following.works[0].name == "cross_k"
    sent = _sent(line, item, line.encoded if crosses else line.current, ALL)
    line.current = sent.after
    return sent


def _is_beside(item: Item | None) -> bool:
    """Whether a segment is of shared experts, which read what the routed ones read; both are added together."""
    return isinstance(item, Segment) and bool(item.works) and item.works[0].name.startswith("shared_")


def _sent(line: Pass, item: Exchange, before: str, rows: str) -> Exchanged:
    """Return the exchange with what it makes of a tensor: the same rows of all, or others; a sum is no longer partial."""
    if f"{line.of}.{line.phase}.{item.name}" not in line.sent:
        return Exchanged(item, before, before)
    after = line.name(item.name, item.forward[0])
    line.made[after] = reshaped(line, line.made[before], after, rows, keeps_cut=item.forward[0] == "shift")
    return Exchanged(item, before, after)


def reshaped(line: Pass, value: Value, name: str, rows: str, *, keeps_cut: bool) -> Value:
    """Return a value like another one, with other rows, and its feature whole unless it stays cut."""
    feature, whole = value.dims[-1]
    axes = value.axes(SLICED, feature) if keeps_cut else ()
    width = whole // line.tensors.mesh.extent(axes)
    each = {"int64": 8, "float32": 4, "uint8": 1}.get(value.dtype, line.tensors.step.width_bytes)
    return line.tensors.tensor(name, line.of, rows, feature, width, each=each, cut=axes, dtype=value.dtype)
