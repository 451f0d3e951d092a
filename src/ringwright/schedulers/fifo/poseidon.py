"""Poseidon: wait-free backpropagation, and for linear layers sufficient factors where they are smaller than the gradient.

Idea: Each layer's gradient leaves as soon as its backward is done. For a linear layer of M x N and a batch of K per rank the
    gradient is the sum of K outer products: sending K (M + N) values to every other rank may be less than M N by server.
Cost: Per rank, in values sent and received: factors 2 K (P-1)(M+N); servers on all ranks 2 M N (2P-2)/P; ring 4 M N (P-1)/P.
Knobs: ``batch`` samples a rank (0: the job's, or 32, the paper's, where no job says it); ``servers`` (0: one on every rank);
    ``scheme``: best, dense or factors; ``dense``: the collective of the other layers (as the workload says, unless given:
    push-pull, all-reduce); ``pair_mb`` (2, unconfirmed) cuts what goes by server.
Holds: No layer is sent before its backward ends; the scheme is decided once, from shapes alone, alike on all ranks.
Figure: VGG19-22K 15.5x on 16 machines over 10 GbE, 30x on 32 over 40 GbE; raw times per 20 iterations in the plot script.
Source: Zhang et al., USENIX ATC 2017, arXiv 1706.03292; sailing-pmls/poseidon.
Declines: nothing; layers that are not linear always go the dense way.
"""

from __future__ import annotations

from typing import Annotated, Literal

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Mebibytes, Range
from ringwright.model.stages import Costs
from ringwright.model.workload import Payload, Queue, Rewrite, Workload
from ringwright.schedulers.order import GRADIENTS

NEEDS = ("workload.gradients",)
SCHEMES = ("best", "dense", "factors")
PAPER_BATCH = 32


def poseidon(
    workload: Workload,
    costs: Costs,
    *,
    batch: Annotated[int, Range(0, 1 << 20)] = 0,
    servers: Annotated[int, Range(0, 65536)] = 0,
    scheme: Annotated[str, Choices(SCHEMES)] = "best",
    dense: Literal["", "push-pull", "all-reduce"] = "",
    pair_mb: Mebibytes = 2,
) -> Workload:
    """Return the workload with the cheaper scheme for each layer, first come first served, and a barrier."""
    if scheme not in SCHEMES:
        raise UsageError(f"poseidon has no scheme '{scheme}'", remedy=f"one of: {', '.join(SCHEMES)}")
    linear = [payload for payload in workload.gradients() if payload.factors]
    samples = {each.name: batch or each.samples or PAPER_BATCH for each in linear}
    chosen = [
        each
        for each in linear
        if scheme == "factors" or (scheme == "best" and _smaller(workload, each, samples[each.name], servers))
    ]
    rewrites = [
        Rewrite("substitute", GRADIENTS, {"names": [p.name for p in chosen if samples[p.name] == each], "batch": each})
        for each in sorted({samples[payload.name] for payload in chosen})
    ]
    if dense:
        rewrites.append(Rewrite("collective", GRADIENTS, {"op": dense}))
    if pair_mb and (dense == "push-pull" or any(p.op == "push-pull" for p in workload.payloads)):
        rewrites.append(Rewrite("partition", GRADIENTS, {"size_bytes": round(pair_mb * (1 << 20)), "op": "push-pull"}))
    return workload.saying("poseidon", _said(linear, chosen, samples, batch)).with_policy(
        "poseidon", rewrites=tuple(rewrites), queue=Queue(), boundary="barrier", agreement="server"
    )


def _said(linear: list[Payload], chosen: list[Payload], samples: dict[str, int], batch: int) -> str:
    if not linear:
        return "no layer is known to be linear: all gradients go whole"
    told = all(each.samples for each in linear)
    ground = "as asked" if batch else "the job's" if told else "the paper's, the job says none"
    listed = ", ".join(str(each) for each in sorted(set(samples.values())))
    return f"factors for {len(chosen)} of {len(linear)} linear layers at batch={listed} a rank ({ground})"


def best_scheme(rows: int, columns: int, batch: int, workers: int, servers: int) -> str:
    """Return "factors" or "dense" for a linear layer, as Poseidon's coordinator decides (paper section 4)."""
    factors = 2 * batch * (workers - 1) * (rows + columns)
    dense = 2 * rows * columns * (workers + servers - 2) / servers
    return "factors" if factors <= dense else "dense"


def _smaller(workload: Workload, payload: Payload, batch: int, servers: int) -> bool:
    ranks = workload.mesh.extent(payload.axes)
    assert payload.factors is not None  # noqa: S101 - the caller has looked
    return ranks > 1 and best_scheme(*payload.factors, batch, ranks, servers or ranks) == "factors"
