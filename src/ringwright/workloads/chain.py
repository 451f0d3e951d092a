"""Data-parallel training of a chain of layers: what papers on scheduling reason about, and what a step can be cut down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.ground.errors import UsageError
from ringwright.model.workload import Edge, Mesh, Payload, RankClass, Resource, Task, Workload


@dataclass(frozen=True)
class ChainLayer:
    """One layer of the chain: seconds forward and backward, bytes and number of its parameters, rows and columns if linear."""

    forward_s: float
    backward_s: float
    size_bytes: int
    elements: int = 0
    factors: tuple[int, int] | None = None
    update_s: float = 0.0
    name: str = ""


def chain(
    name: str,
    layers: Sequence[ChainLayer],
    ranks: int = 2,
    *,
    op: str = "all-reduce",
    micro_batches: int = 1,
    assumptions: tuple[str, ...] = (),
) -> Workload:
    """Return one training step of ``layers`` (first to last) on ``ranks`` data-parallel ranks; UsageError without layers.

    Each layer with parameters is one payload, made by its backward task, taken by its update, which the layer's next
    forward task waits for.
    """
    if not layers:
        raise UsageError(f"'{name}' has no layers")
    labels = [each.name or f"layer{at}" for at, each in enumerate(layers)]
    edges, payloads = [], []
    numbered = list(enumerate(layers))
    tasks = [Task(f"F.{labels[at]}", "all", "F", each.forward_s, at, ("F", 0)) for at, each in numbered]
    tasks += [Task(f"B.{labels[at]}", "all", "B", each.backward_s, at, ("B", 0)) for at, each in reversed(numbered)]
    for (at, each), label in zip(numbered, labels, strict=True):
        edges.append(Edge(f"F.{label}", f"F.{labels[at + 1]}" if at + 1 < len(layers) else f"B.{label}"))
        if at:
            edges.append(Edge(f"B.{label}", f"B.{labels[at - 1]}"))
        if each.size_bytes:
            tasks.append(Task(f"U.{label}", "all", "U", each.update_s, at, ("U", 0), per="step"))
            edges.append(Edge(f"U.{label}", f"F.{label}", 1))
            payloads.append(
                Payload(
                    label,
                    "all",
                    op,
                    each.size_bytes,
                    ("dp",),
                    "dp",
                    (f"B.{label}",),
                    ((f"U.{label}", 0),),
                    layer=at,
                    elements=each.elements or each.size_bytes // 4,
                    merges="gradients",
                    factors=each.factors,
                )
            )
    return Workload(
        name,
        Mesh((("dp", ranks),)),
        (RankClass("all"),),
        tuple(tasks),
        tuple(edges),
        tuple(payloads),
        (Resource("compute"), Resource("link.tx", "shared"), Resource("link.rx", "shared")),
        micro_batches,
        assumptions=assumptions,
    )
