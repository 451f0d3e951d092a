"""The device mesh of a parallel form, and along which of its axes each role communicates."""

from __future__ import annotations

from itertools import pairwise

from ringwright.ground.errors import UsageError
from ringwright.model.workload import Mesh
from ringwright.workloads.parallel import Parallel


def grid(parallel: Parallel) -> tuple[Mesh, dict[str, tuple[str, ...]]]:
    """Return the mesh (pp outermost, tp innermost) and the axes of tp, cp, dp, ep, edp, pp and side; an absent role has none.

    Experts are shared out among ``ep`` neighbours of a stage, so ep and edp may consist of pieces of the other axes. The two
    sides of a pipeline that is fed from both ends are replicas, the outermost ones. Raises UsageError where experts would cut an
    axis unevenly.
    """
    inner, own = parallel.tp * parallel.cp, parallel.tp * parallel.cp * parallel.dp
    replicas = own * parallel.sides
    cuts = sorted({1, parallel.tp, inner, parallel.ep, own, replicas})
    for small, large in pairwise(cuts):
        if large % small:
            raise UsageError(
                f"ep{parallel.ep} lies across tp{parallel.tp} x cp{parallel.cp} unevenly",
                remedy=f"an ep that divides {inner}, or that {inner} divides",
            )
    spans = list(pairwise(cuts))
    names = {span: _name(span, parallel, spans) for span in spans}
    axes = [("pp", parallel.pp)] if parallel.pp > 1 else []
    axes += [(names[span], span[1] // span[0]) for span in reversed(spans)]

    def between(low: int, high: int) -> tuple[str, ...]:
        return tuple(names[span] for span in reversed(spans) if span[0] >= low and span[1] <= high)

    roles = {
        "tp": between(1, parallel.tp),
        "cp": between(parallel.tp, inner),
        "dp": between(parallel.tp, replicas),
        "ep": between(1, parallel.ep),
        "edp": between(parallel.ep if parallel.ep > 1 else parallel.tp, replicas),
        "pp": ("pp",) if parallel.pp > 1 else (),
        "side": between(own, replicas),
    }
    return Mesh(tuple(axes) or (("dp", 1),)), roles


def _name(span: tuple[int, int], parallel: Parallel, spans: list[tuple[int, int]]) -> str:
    """Return the axis that a piece belongs to, numbered from the inside where it is only a part of it; experts' own is ep."""
    if parallel.ep > 1 and span == (1, parallel.ep):
        return "ep"
    if span[0] >= parallel.tp * parallel.cp * parallel.dp:
        return "side"
    ends = {"tp": (1, parallel.tp), "cp": (parallel.tp, parallel.tp * parallel.cp)}
    last = {"dp": (parallel.tp * parallel.cp, parallel.tp * parallel.cp * parallel.dp)}
    for name, (low, high) in {**ends, **last}.items():
        if low <= span[0] and span[1] <= high:
            parts = [each for each in spans if low <= each[0] and each[1] <= high and each != (1, parallel.ep)]
            return name if len(parts) == 1 else f"{name}{parts.index(span)}"
    raise UsageError(f"no axis holds ranks {span[0]} to {span[1]}")
