"""What a plan of motifs does to a graph, by rules: ranges of bytes, compositions, networks; and the order on each network."""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.graph.algebra import rewritten
from ringwright.model.values import SLICED
from ringwright.model.workload import Gate, Payload, Queue, Workload
from ringwright.schedulers.decompose.centauri._plan import LEVELS as BY_LEVELS
from ringwright.schedulers.decompose.centauri._plan import Todo, pieces_of
from ringwright.schedulers.decompose.syndicate._motifs import HALVES, LEVELS, MotifPlan, OperationKind


def carried_out(
    workload: Workload, kinds: Sequence[OperationKind], plan: MotifPlan, networks: Sequence[str]
) -> Workload:
    """Return the workload under a plan; RewriteError where a rule does not apply."""
    each_of = [(name, at) for at, kind in enumerate(kinds) for name in kind.names]
    cuts: Todo = [
        ("cut", name, {"dim": _dim(workload, workload.payload[name]), "parts": len(plan.kinds[at].networks)})
        for name, at in each_of
        if len(plan.kinds[at].networks) > 1
    ]
    made = rewritten(workload, cuts) if cuts else workload
    pieces = pieces_of(workload, made)
    parts = [(piece, at, row) for name, at in each_of for row, piece in enumerate(pieces.get(name) or [name])]
    todo = [rule for piece, at, _ in parts for rule in _composed(made.payload[piece], plan.kinds[at].template)]
    composed = rewritten(made, todo) if todo else made
    legs = pieces_of(made, composed)
    motifs = [
        (motif, at, network)
        for piece, at, row in parts
        for motif, network in zip(legs.get(piece) or [piece], plan.kinds[at].networks[row], strict=True)
    ]
    on: Todo = [("on-network", motif, {"network": network}) for motif, _, network in motifs if network]
    sent = rewritten(composed, on) if on else composed
    urgency = {kind: turn for turn, kind in enumerate(plan.order)}
    used = {network for _, _, network in motifs if network}
    classes = {network: at for at, network in enumerate(networks, 1) if network in used}
    gates = tuple(Gate(at, at, state) for at in classes.values() for state in ("waiting", "running"))
    queue = Queue(keys={motif: urgency[at] for motif, at, _ in motifs}, traffic=classes, gates=gates)
    return sent.with_policy("syndicate", queue=queue)


def _composed(payload: Payload, template: str) -> Todo:
    if template == HALVES:
        return [("split-all-reduce", payload.name, {})]
    if template == LEVELS:
        more = {"first": "across"} if payload.op == "all-gather" else {}
        return [(BY_LEVELS[payload.op], payload.name, {"inner": payload.axes[-1], **more})]
    return []


def _dim(workload: Workload, payload: Payload) -> str:
    """Return the dimension along which a payload is cut: the largest that it does not slice, or the largest of all."""
    source, result = workload.value[payload.source], workload.value[payload.result]
    sliced = {
        each.dim for end in (source, result) for each in end.layout if each.how == SLICED and each.axis in payload.axes
    }
    mine = [(name not in sliced, size, name) for name, size in source.dims if name in dict(result.dims)]
    return max(mine)[2]
