"""In which order a pipeline stage runs its forward and backward passes.

1F1B and its interleaved form (Narayanan et al., SC 2021, arXiv 2104.04473; Megatron-LM), and all forward before all backward.
"""

from __future__ import annotations

from ringwright.errors import UsageError

Order = tuple[tuple[str, int, int], ...]
SCHEDULES = ("1f1b", "gpipe")


def order(schedule: str, stages: int, stage: int, micro_batches: int, chunks: int = 1, *, trains: bool = True) -> Order:
    """Return (phase, chunk, micro-batch) of a stage in the order of its work; UsageError for a schedule that is not known."""
    if schedule not in SCHEDULES:
        raise UsageError(f"'{schedule}' is no pipeline schedule", remedy=f"one of: {', '.join(SCHEDULES)}")
    total = micro_batches * chunks
    forward = [("F", *_turn(at, stages, micro_batches, chunks)) for at in range(total)]
    if not trains:
        return tuple(forward)
    backward = [("B", chunks - 1 - chunk, batch) for _, chunk, batch in forward]
    ahead = total if schedule == "gpipe" else min(total, _warm_up(stages, stage, chunks))
    turns = forward[:ahead]
    for at in range(total - ahead):
        turns += [forward[ahead + at], backward[at]]
    return tuple(turns + backward[total - ahead :])


def _warm_up(stages: int, stage: int, chunks: int) -> int:
    """Return how many forward passes go before the first backward one."""
    if chunks == 1:
        return stages - stage - 1
    return 2 * (stages - stage - 1) + (chunks - 1) * stages


def _turn(at: int, stages: int, micro_batches: int, chunks: int) -> tuple[int, int]:
    """Return (chunk, micro-batch) of the ``at``-th forward pass: groups of as many micro-batches as stages take turns."""
    if chunks == 1:
        return 0, at
    group, inside = divmod(at, stages * chunks)
    size = min(stages, micro_batches - group * stages)
    chunk, position = divmod(inside, size)
    return chunk, group * stages + position
