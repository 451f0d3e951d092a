"""What one rank program is told: a JSON object, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ringwright.ground.errors import UsageError

FORMS = ("none", "ddp", "fsdp", "tp", "tp+fsdp", "ep", "pp")
MODES = ("training", "lora", "head", "inference")
DTYPES = ("float32", "bfloat16")
NO_ATTENTION = ("resnet", "vgg")
NO_DECODERS = ("bert", *NO_ATTENTION)
NOT_IN = {"ddp": ("inference",), "tp": ("lora",), "tp+fsdp": ("lora",), "pp": ("lora", "head")}


@dataclass(frozen=True)
class ExperimentSpec:
    """One grid point of an experiment.

    ``parallel`` holds "form" and the ranks of each role (dp, tp, pp, ep); ``batch`` is sequences (or images) of one data
    rank and step, cut into ``micro_batches`` in a pipeline; ``steps`` are iterations, or decoded tokens after the prefill;
    ``fake`` is {"world": ranks, "rank": which} for torch's fake process group; ``store`` a file to meet at in place of
    MASTER_ADDR; ``out`` a folder for what each rank found; ``bucket_cap_mb`` None is the default of DDP.
    """

    model: str
    dims: dict[str, int]
    parallel: dict[str, Any]
    mode: str = "training"
    batch: int = 2
    sequence: int = 32
    micro_batches: int = 1
    steps: int = 3
    dtype: str = "float32"
    seed: int = 0
    fake: dict[str, int] | None = None
    threads: int = 1
    out: str = ""
    store: str = ""
    bucket_cap_mb: float | None = None
    rank_of_update: int = 8  # of the two thin matrices beside a frozen one
    warm: int = 0  # steps after which each rank prints "warm", so that a fault script can begin

    @property
    def form(self) -> str:
        """The parallel form."""
        return str(self.parallel.get("form", "none"))

    def ranks(self, role: str) -> int:
        """Return how many ranks share this role."""
        return int(self.parallel.get(role, 1))


def read_spec(given: dict[str, Any]) -> ExperimentSpec:
    """Return the checked grid point; UsageError for a key, form, mode or type that does not exist."""
    known = {each.name for each in fields(ExperimentSpec)}
    strange = set(given) - known
    if strange:
        raise UsageError(f"a cell has no key '{min(strange)}'", remedy=f"one of: {', '.join(sorted(known))}")
    missing = {"model", "dims", "parallel"} - set(given)
    if missing:
        raise UsageError(f"a cell needs '{min(missing)}'")
    made = ExperimentSpec(**given)
    for value, legal in ((made.form, FORMS), (made.mode, MODES), (made.dtype, DTYPES)):
        if value not in legal:
            raise UsageError(f"'{value}' does not exist", remedy=f"one of: {', '.join(legal)}")
    check(made)
    return made


def check(spec: ExperimentSpec) -> None:
    """Raise UsageError where family, form and mode do not go together; the parallel forms refuse dimensions themselves."""
    if spec.mode == "inference" and spec.model in NO_DECODERS:
        raise UsageError(f"'{spec.model}' does not decode", remedy="another mode: training, head")
    if spec.mode == "lora" and spec.model in NO_ATTENTION:
        raise UsageError(f"'{spec.model}' has no attention", remedy="another mode: training, head")
    if spec.mode in NOT_IN.get(spec.form, ()):
        left = [mode for mode in MODES if mode not in NOT_IN[spec.form]]
        raise UsageError(f"'{spec.form}' does not go with mode '{spec.mode}'", remedy=f"one of: {', '.join(left)}")
