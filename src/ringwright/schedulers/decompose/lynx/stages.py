"""How many layers a pipeline stage gets, if what it computes again counts: early stages hold more micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringwright.ground.errors import UsageError


def even(layers: int, stages: int) -> list[int]:
    """Return the layers of each stage, as even as they are whole, the first ones with one more; UsageError for too few."""
    if not 1 <= stages <= layers:
        raise UsageError(f"{layers} layers are not {stages} stages", remedy="at least a layer a stage")
    return [layers // stages + (at < layers % stages) for at in range(stages)]


def partitioned(counts: Sequence[int], stage_s: Callable[[int, int], float]) -> list[int]:
    """Return how many layers each stage gets: as ``counts`` says, then moved one by one while the slowest stage gets faster.

    ``stage_s(stage, layers)`` is what a micro-batch takes there, with all that is computed again on demand; inf: it does not fit.
    """
    best = list(counts)
    known: dict[tuple[int, int], float] = {}

    def seconds(made: Sequence[int]) -> list[float]:
        for key in enumerate(made):
            if key not in known:
                known[key] = stage_s(*key)
        return [known[key] for key in enumerate(made)]

    while True:
        now = seconds(best)
        slowest = max(range(len(best)), key=lambda at: now[at])
        moves = [other for other in range(len(best)) if other != slowest and best[slowest] > 1]
        tried = []
        for other in moves:
            made = [each - (at == slowest) + (at == other) for at, each in enumerate(best)]
            tried.append((max(seconds(made)), sum(seconds(made)), made))
        if not tried or min(tried)[0] >= now[slowest]:
            return best
        best = min(tried)[2]


def imbalance(times: Sequence[float]) -> float:
    """Return by which share the slowest stage is slower than the mean."""
    return max(times) / (sum(times) / len(times)) - 1.0
