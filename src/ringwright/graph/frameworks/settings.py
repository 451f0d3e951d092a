"""The parallel form of a job and what overlaps in it, as training frameworks are told: one noun for all their spellings."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ringwright.ground.errors import UsageError

AXES = ("tp", "pp", "vp", "cp", "ep", "dp")
RECOMPUTED = ("", "none", "selective", "full")  # the first: not said
PIPELINED = ("1f1b", "gpipe")


@dataclass(frozen=True)
class FrameworkSettings:
    """Ranks of each axis (with ``vp`` chunks of a pipeline stage), how states are shared out, and what overlaps.

    ``sp`` cuts activations along the sequence, ``sg`` what stages send among tensor parallel ranks; ``zero`` is 0, 1 or 3, as of
    ``workloads.parallel``. ``overlap_gradients``: they are reduced beside the backward pass; ``overlap_parameters``: they are
    gathered beside the next forward pass; ``overlap_tensor``: operations of tensor parallelism run beside the products next to
    them, block by block. A bucket of gradients is full with ``bucket_elements`` of them (None: as the framework has it).
    ``micro_batches`` of a step and ``micro_batch_size`` sequences in each are both said, or neither.
    """

    tp: int = 1
    pp: int = 1
    vp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    sp: bool = False
    sg: bool = False
    zero: int = 0
    schedule: str = "1f1b"
    overlap_gradients: bool = False
    overlap_parameters: bool = False
    overlap_tensor: bool = False
    bucket_elements: int | None = None
    recompute: str = ""
    micro_batches: int | None = None
    micro_batch_size: int | None = None

    def __post_init__(self) -> None:
        for name in (*AXES, "bucket_elements", "micro_batches", "micro_batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}", remedy=f"{name} of 1 or more")
        for name, known in (("zero", (0, 1, 3)), ("recompute", RECOMPUTED), ("schedule", PIPELINED)):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"{name} is '{getattr(self, name)}'", remedy=f"one of: {', '.join(str(each) for each in known)}"
                )
        if (self.micro_batches is None) != (self.micro_batch_size is None):
            raise UsageError("micro-batches and their size go together", remedy="give both, or neither")
        for wrong, what, remedy in (
            (self.vp > 1 and self.pp == 1, "vp without a pipeline", "add pp2, or leave vp out"),
            ((self.sp or self.overlap_tensor) and self.tp == 1, "sp without tensor parallelism", "add tp2"),
            (
                self.sg and (1 in (self.tp, self.pp) or self.sp),
                "sg cuts what is whole between stages",
                "tp2,pp2 without sp",
            ),
            (self.overlap_parameters and not self.zero, "parameters that nobody gathers overlap", "zero1, or fsdp"),
        ):
            if wrong:
                raise UsageError(f"{self.form}: {what}", remedy=remedy)

    @property
    def world(self) -> int:
        """How many ranks it takes."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def form(self) -> str:
        """The parallel form as it is typed: tp8,pp16,dp2,sp,zero1."""
        words = [f"{name}{getattr(self, name)}" for name in AXES if getattr(self, name) > 1]
        words += [name for name in ("sp", "sg") if getattr(self, name)]
        return ",".join([*words, *{1: ["zero1"], 3: ["fsdp"]}.get(self.zero, [])]) or "dp1"

    @property
    def global_batch_size(self) -> int | None:
        """Sequences of a step over all replicas; None where it is not said."""
        if self.micro_batches is None or self.micro_batch_size is None:
            return None
        return self.micro_batches * self.micro_batch_size * self.dp

    def with_batches(self, global_batch_size: int, micro_batch_size: int, where: str) -> FrameworkSettings:
        """Return it with the micro-batches that follow from the sequences of a step; UsageError where they come out uneven."""
        each = micro_batch_size * self.dp
        if each < 1 or global_batch_size < each or global_batch_size % each:
            raise UsageError(
                f"{global_batch_size} sequences are no multiple of {micro_batch_size} x dp{self.dp}",
                where=where,
                remedy="the number of GPUs that the file is for",
            )
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return FrameworkSettings(
            **{**values, "micro_batches": global_batch_size // each, "micro_batch_size": micro_batch_size}
        )
