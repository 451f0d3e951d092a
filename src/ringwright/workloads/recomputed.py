"""Selective recomputation of operations, as torchtitan does it by default: which layers of a block run once more in backward.

Kept are what a block begins with, what attention gave with a number a row, and the output of every second matrix from the first;
queries, keys and values lie together here and are kept together. All else of a block is computed again: norms, sums, activation
functions, the other matrices. The loss is PyTorch's own cross-entropy in 32 bits: its logarithms, the gradient of these and that
of the logits are there at once.

Source: pytorch/torchtitan, ``distributed/activation_checkpoint.py`` (mode selective, option op) and ``components/loss.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError
from ringwright.workloads.layer_work import LayerWork

if TYPE_CHECKING:
    from ringwright.workloads.dataflow import Pass, SegmentFlow
    from ringwright.workloads.model_cards import ModelCard
    from ringwright.workloads.parallel import Parallel

OPERATIONS = "selective-op"
LOSS_COPIES = 3  # of the logits, in 32 bits
ENDS = ("lookup", "logits")  # kinds of layers outside the blocks that repeat
OF_ATTENTION = ("queries_keys_values", "attention", "row_sums")


def refuse(trained: ModelCard, parallel: Parallel) -> None:
    """Raise UsageError where it is not known what would be computed, and sent, once more."""
    has_experts = any(layer.expert for block in trained.anatomy().blocks for layer in block.layers)
    if trained.takes_samples or has_experts or parallel.tp > 1 or parallel.cp > 1:
        raise UsageError(
            f"--recompute {OPERATIONS} is of dense blocks that a rank has whole: no images, no experts, tp1 and cp1",
            where=f"{trained.size}, {parallel}",
            remedy="--recompute full, or --recompute none",
        )


def again(works: Sequence[LayerWork]) -> list[LayerWork]:
    """Return the layers of a segment whose forward pass runs once more."""
    if any(work.kind in ENDS for work in works):
        return []
    kept = _kept_matrices(works)
    return [work for work in works if work.kind != "attention" and work.name not in kept]


def _kept_matrices(works: Sequence[LayerWork]) -> set[str]:
    """Return the names of every second matrix, the first among them."""
    return {work.name for work in [each for each in works if each.kind == "matrix"][::2]}


def left_out(line: Pass, flow: SegmentFlow) -> None:
    """Let backward not need what is computed again, and keep what is saved whether it needs it or not."""
    works = flow.item.works
    if not again(works):
        return
    kept, made = _kept_matrices(works), flow.made
    labels = {*OF_ATTENTION, *kept, *(f"{name}_output" for name in kept)}

    def is_kept(name: str) -> bool:
        return name not in made or name.rpartition(".")[2].rstrip("2") in labels

    saved = [name for name in flow.makers.writes if name.endswith("_output") and is_kept(name)]
    flow.inputs[:] = [name for name in flow.inputs if is_kept(name)]
    flow.inner[:] = [*(name for name in flow.inner if is_kept(name)), *saved]
