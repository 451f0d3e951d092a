"""Expert-parallel training of a chain of mixture-of-experts layers: two all-to-alls a layer and direction, and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ringwright.ground.errors import UsageError
from ringwright.model.workload import Edge, Mesh, Payload, RankClass, Resource, Task, Workload


@dataclass(frozen=True)
class MoeLayer:
    """One layer. Seconds of its parts forward; backward they take ``backward`` times as long.

    ``all_to_all_bytes`` is what a rank holds of tokens (nccl-tests size); ``dense_bytes`` are the gradients of what every
    rank has, ``expert_bytes`` that of the experts of one rank.
    """

    dense_s: float
    experts_s: float
    combine_s: float
    all_to_all_bytes: int
    dense_bytes: tuple[int, ...] = ()
    expert_bytes: int = 0
    backward: float = 2.0


def moe_chain(
    name: str,
    layers: Sequence[MoeLayer],
    experts: int,
    *,
    replicas: int = 1,
    micro_batches: int = 1,
    assumptions: tuple[str, ...] = (),
) -> Workload:
    """Return one training step on ``replicas`` groups of ``experts`` ranks (axes dp and ep); UsageError without layers.

    Dense gradients are summed over all ranks, those of experts over the replicas. Tasks of experts are tagged so, and
    backward of what combines their results too, since an all-to-all follows it at once.
    """
    if not layers:
        raise UsageError(f"'{name}' has no layers")
    if experts < 2:
        raise UsageError(f"'{name}' has {experts} ranks a group: nothing is exchanged", remedy="experts=2 or more")
    tasks: list[Task] = []
    edges: list[Edge] = []
    payloads: list[Payload] = []
    for at, layer in enumerate(layers):
        tasks += _forward(at, layer)
        payloads += _exchanges("F", ("dense", "experts", "combine"), at, layer)
        if at:
            edges.append(Edge(f"F.combine{at - 1}", f"F.dense{at}"))
    edges.append(Edge(f"F.combine{len(layers) - 1}", f"B.combine{len(layers) - 1}"))
    for at, layer in reversed(list(enumerate(layers))):
        tasks += _backward(at, layer)
        payloads += _exchanges("B", ("combine", "experts", "dense"), at, layer)
        if at:
            edges.append(Edge(f"B.dense{at}", f"B.combine{at - 1}"))
    for at, layer in enumerate(layers):
        if layer.dense_bytes or layer.expert_bytes:
            tasks.append(Task(f"U.layer{at}", "all", "U", 0.0, at, ("U", 0), per="step"))
            edges.append(Edge(f"U.layer{at}", f"F.dense{at}", 1))
            payloads += _gradients(at, layer)
    return Workload(
        name,
        Mesh((("dp", replicas), ("ep", experts))),
        (RankClass("all"),),
        tuple(tasks),
        tuple(edges),
        tuple(payloads),
        (Resource("compute"), Resource("link.tx", "shared"), Resource("link.rx", "shared")),
        micro_batches,
        assumptions=assumptions,
    )


def _forward(at: int, layer: MoeLayer) -> list[Task]:
    return [
        Task(f"F.dense{at}", "all", "F", layer.dense_s, at, ("F", 0)),
        Task(f"F.experts{at}", "all", "F", layer.experts_s, at, ("F", 0), tag="experts"),
        Task(f"F.combine{at}", "all", "F", layer.combine_s, at, ("F", 0)),
    ]


def _backward(at: int, layer: MoeLayer) -> list[Task]:
    longer = layer.backward
    return [
        Task(f"B.combine{at}", "all", "B", layer.combine_s * longer, at, ("B", 0), tag="combine"),
        Task(f"B.experts{at}", "all", "B", layer.experts_s * longer, at, ("B", 0), tag="experts"),
        Task(f"B.dense{at}", "all", "B", layer.dense_s * longer, at, ("B", 0)),
    ]


def _exchanges(phase: str, parts: tuple[str, str, str], at: int, layer: MoeLayer) -> list[Payload]:
    """Return the two all-to-alls between three parts of a layer."""
    return [
        Payload(
            f"{phase}.{before}{at}-{after}",
            "all",
            "all-to-all",
            layer.all_to_all_bytes,
            ("ep",),
            "ep",
            (f"{phase}.{before}{at}",),
            ((f"{phase}.{after}{at}", 0),),
            per="micro-batch",
            layer=at,
        )
        for before, after in pairwise(parts)
    ]


def _gradients(at: int, layer: MoeLayer) -> list[Payload]:
    update = ((f"U.layer{at}", 0),)
    payloads = [
        Payload(
            f"dense{at}.{part}",
            "all",
            "all-reduce",
            size,
            ("dp", "ep"),
            "dp",
            (f"B.dense{at}",),
            update,
            layer=at,
            elements=size // 4,
            merges="gradients",
        )
        for part, size in enumerate(layer.dense_bytes)
    ]
    if layer.expert_bytes:
        payloads.append(
            Payload(
                f"experts{at}",
                "all",
                "all-reduce",
                layer.expert_bytes,
                ("dp",),
                "edp",
                (f"B.experts{at}",),
                update,
                layer=at,
                elements=layer.expert_bytes // 4,
                merges="gradients",
            )
        )
    return payloads
