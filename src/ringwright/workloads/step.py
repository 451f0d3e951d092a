"""One iteration of a job, as it is asked about."""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.ground.errors import UsageError
from ringwright.workloads import recomputed, tables
from ringwright.workloads.flops import MODES
from ringwright.workloads.layer_work import Load
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parallel import Parallel, check
from ringwright.workloads.shares import middle
from ringwright.workloads.stage_layers import chunks

RECOMPUTE = ("none", "selective", recomputed.OPERATIONS, "full")


@dataclass(frozen=True)
class StepSpec:
    """One iteration of training, one pass over a prompt, or one decoded token of each sequence.

    ``micro_batch_size`` is in sequences (or images), ``width_bytes`` that of activations and parameters on the wire,
    ``gradient_bytes`` that of gradients; ``stage`` None is the middle one.
    """

    parallel: Parallel
    sequence: int
    micro_batches: int = 1
    micro_batch_size: int = 1
    mode: str = "training"
    recompute: str = "none"
    width_bytes: int = 2
    gradient_bytes: int = 4
    stage: int | None = None

    @property
    def load(self) -> Load:
        """What goes through a layer for one micro-batch."""
        return Load(self.micro_batch_size, self.sequence, self.parallel, self.mode, self.width_bytes)

    @property
    def place(self) -> int:
        """The stage."""
        return middle(self.parallel) if self.stage is None else self.stage

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return self.mode == "training"

    @property
    def forwards(self) -> tuple[str, ...]:
        """In which phases a block's forward pass runs: once more in the backward phase with full recomputation."""
        if not self.trains:
            return (self.mode,)
        return ("forward", "backward") if self.recompute == "full" else ("forward",)


def refuse(card: ModelCard, step: StepSpec) -> None:
    """Raise UsageError, with the numbers and a remedy, where the model cannot be worked on like that."""
    for value, legal in ((step.mode, MODES), (step.recompute, RECOMPUTE)):
        if value not in legal:
            raise UsageError(f"'{value}' does not exist", remedy=f"one of: {', '.join(legal)}")
    check(
        card,
        step.parallel,
        sequence=step.sequence,
        micro_batches=step.micro_batches,
        micro_batch_size=step.micro_batch_size,
    )
    if step.recompute == recomputed.OPERATIONS:
        recomputed.refuse(card, step.parallel)
    if not card.takes_samples:
        chunks(card, step.parallel)
    tables.check(card, step.parallel)
    if not step.trains and not card.decodes:
        raise UsageError(f"{card.size} has no mode '{step.mode}': it does not decode", remedy="--mode training")
    if step.mode == "decode" and step.parallel.cp > 1:
        raise UsageError(
            f"one token a sequence cannot be cut over cp{step.parallel.cp}", remedy="leave cp out, or --mode prefill"
        )
    cut = "sp" * step.parallel.sp + "sg" * step.parallel.sg
    if step.mode == "decode" and cut and step.micro_batch_size % step.parallel.tp:
        raise UsageError(
            f"{step.micro_batch_size} decoded tokens cannot be cut over tp{step.parallel.tp}", remedy=f"leave {cut} out"
        )
