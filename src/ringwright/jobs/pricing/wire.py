"""How many bytes a rank puts on wires in a step: every operation as its algorithm sends it, not as the job sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.job.groups import OperationGroups

if TYPE_CHECKING:
    from ringwright.engines.job.run import JobRun
    from ringwright.model.program import Block, Program
    from ringwright.model.workload import Workload

Sent = Callable[[str, int, tuple[int, ...]], float]  # operation, bytes, ranks -> bytes that the group sends


def sent_by_ranks(program: Program) -> float:
    """Return the bytes that all ranks together put on wires, a protocol's flags among them; what switches send is not theirs."""
    sent = program.cost.sent_bytes
    if program.aggregators:
        sent = sum(_of_block(program, block) for step in program.steps() for block in step.blocks)
    return sent * program.software.wire_factor


def _of_block(program: Program, block: Block) -> float:
    """Return the bytes that ranks send in a block; what the network copies is sent once."""
    src, dst, chunk, _ = block.arrays()
    mine = np.flatnonzero((src < program.p) & (src != dst))
    if block.multicast and len(mine):
        _, first = np.unique(np.stack([src[mine], chunk[mine]]), axis=1, return_index=True)
        mine = mine[first]
    return float(program.layout.message_bytes(chunk[mine], block.span).sum())


def wire_bytes(scheduled: Workload, run: JobRun, sent: Sent) -> float:
    """Return the bytes of one step, the mean over all ranks, of a scheduled workload that was run."""
    rank_classes = run.laid.rank_classes
    groups, total = OperationGroups(scheduled, rank_classes), 0.0
    for operation in run.laid.operations:
        whole, rest = operation.sizes()
        times = scheduled.micro_batches if operation.per == "micro-batch" else 1
        for members, ranks, _ in groups.groups(operation):
            alike = _alike(operation.op, rank_classes.counts, members, len(ranks))
            once = sent(operation.op, rest, ranks)
            if operation.pieces > 1:
                once += sent(operation.op, whole, ranks) * (operation.pieces - 1)
            total += alike * times * once
    return total / sum(rank_classes.counts)


def _alike(op: str, counts: tuple[int, ...], members: tuple[int, ...], ranks: int) -> float:
    """Return how many groups, or pairs, the simulated one stands for."""
    if op == "send-recv":
        return counts[members[0]]
    return sum(counts[rank_class] for rank_class in dict.fromkeys(members)) / ranks
