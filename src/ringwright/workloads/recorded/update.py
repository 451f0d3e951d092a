"""Gradients of a recorded step: the updates that use them, and which forward work of the next step waits for each."""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.workloads.recorded.plan import BACKWARD, FORWARD, RankStep

NOTES = (
    "a gradient is of the layers whose backward pass ran since the gradient before it; forward takes as large a share for them",
    "the update of the parameters is divided among the gradients by their bytes",
)


@dataclass(frozen=True)
class Update:
    """The update of what one gradient is for: seconds, and the piece of the next step that waits for it."""

    sent: int
    seconds: float
    needed_by: int
    layer: int


def updates(plan: RankStep) -> list[Update]:
    """Return an update per gradient, none where the update of the parameters itself communicates; may cut pieces."""
    sums = [at for at, each in enumerate(plan.sent) if each.is_gradient]
    if not sums or not plan.tail or _communicates(plan):
        return []
    shares = _shares(plan, sums)
    needed = [_starting_at(plan, 1 - share) for share in shares]
    needed = [_starting_at(plan, 1 - share) for share in shares]  # once more: later cuts have moved earlier pieces
    needed = [max(at, plan.sent[of].earliest) for at, of in zip(needed, sums, strict=True)]
    seconds = sum(piece.seconds for piece in plan.pieces[plan.tail :])
    size = sum(plan.sent[at].call.size_bytes for at in sums)
    return [
        Update(at, seconds * plan.sent[at].call.size_bytes / size, needed[turn], len(sums) - 1 - turn)
        for turn, at in enumerate(sums)
    ]


def _communicates(plan: RankStep) -> bool:
    tail = plan.tail or 0
    return any(one >= tail for each in plan.sent if not each.is_gradient for one in (*each.producers, *each.consumers))


def _shares(plan: RankStep, sums: list[int]) -> list[float]:
    """Return how much of the backward pass had run when each gradient was ready; the last one is all of it."""
    passed, total = [], 0.0
    for piece in plan.pieces[: plan.tail]:
        total += piece.seconds if piece.phase == BACKWARD else 0.0
        passed.append(total)
    shares, most = [], 0.0
    for at in sums:
        maker = max(plan.sent[at].producers, default=-1)
        most = max(most, passed[maker] if 0 <= maker < len(passed) else 0.0)
        shares.append(most)
    return [share / most if most else 1.0 for share in shares[:-1]] + [1.0]


def _starting_at(plan: RankStep, share: float) -> int:
    """Return the forward piece that begins after a share of the forward pass; cut one where none does."""
    forward = [at for at, piece in enumerate(plan.pieces[: plan.tail]) if piece.phase == FORWARD]
    if not forward:
        return 0
    total = sum(plan.pieces[at].seconds for at in forward)
    wanted, passed = share * total, 0.0
    slack = 1e-9 * total
    for at in forward:
        if passed >= wanted - slack:
            return at
        if passed + plan.pieces[at].seconds > wanted + slack:
            plan.cut(at, wanted - passed)
            return at + 1
        passed += plan.pieces[at].seconds
    return forward[-1]
