"""The work of a grid point: a card, a parallel form and a mode, as the JSON of a rank program and as expected rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringwright.workloads.expected.front import expected
from ringwright.workloads.expected.legal import check
from ringwright.workloads.expected.row import ExpectedRow
from ringwright.workloads.model_cards import ModelCard

ROLES = ("dp", "tp", "ep", "pp")


@dataclass(frozen=True)
class SweepWork:
    """What the ranks of one grid point do.

    ``batch`` counts the sequences (or images) of one data rank and step; ``steps`` iterations or tokens.
    """

    card: ModelCard
    parallel: Mapping[str, int | str]
    mode: str = "training"
    batch: int = 2
    sequence: int = 32
    micro_batches: int = 1
    steps: int = 3
    dtype: str = "float32"
    seed: int = 0
    bucket_cap_mb: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def world(self) -> int:
        """How many ranks it takes."""
        ranks = 1
        for role in ROLES:
            ranks *= int(self.parallel.get(role, 1))
        return ranks

    def rows(self, rank: int = 0) -> list[ExpectedRow]:
        """Return what rank ``rank`` must issue; UsageError for a grid point that is not legal."""
        return expected(
            self.card,
            self.parallel,
            self.mode,
            batch=self.batch,
            sequence=self.sequence,
            rank=rank,
            micro_batches=self.micro_batches,
            dtype=self.dtype,
            bucket_cap_mb=self.bucket_cap_mb,
        )

    def job(self, *, fake_rank: int | None = None, **more: Any) -> dict[str, Any]:
        """Return the object that the rank program takes; with ``fake_rank`` that rank runs alone on the fake group.

        UsageError for a grid point that is not legal, before any rank has started.
        """
        check(self.card, self.parallel, self.mode)
        self.rows()
        given = {
            "model": self.card.family,
            "dims": dict(self.card.dims),
            "parallel": dict(self.parallel),
            "mode": self.mode,
            "batch": self.batch,
            "sequence": self.sequence,
            "micro_batches": self.micro_batches,
            "steps": self.steps,
            "dtype": self.dtype,
            "seed": self.seed,
            "bucket_cap_mb": self.bucket_cap_mb,
            **self.extra,
            **more,
        }
        if fake_rank is not None:
            given["fake"] = {"world": self.world, "rank": fake_rank}
        return given

    def command(self, **more: Any) -> list[str]:
        """Return the arguments that run one rank of it, after the interpreter's name."""
        return ["-m", "ringwright_lab.models.job", json.dumps(self.job(**more))]

    def alone(self) -> SweepWork:
        """Return the same work on one rank, for comparison of the numbers: all the data, no form."""
        data = int(self.parallel.get("dp", 1)) * int(self.parallel.get("ep", 1))
        return replace(self, parallel={"form": "none"}, batch=self.batch * data, micro_batches=1)


def issued(rows: list[ExpectedRow], mode: str, turn: int) -> list[ExpectedRow]:
    """Return the rows of one turn: of training iteration ``turn`` (-1 is the set-up), or of the prompt and token ``turn``."""
    from ringwright.workloads.expected.row import in_iteration, merged

    if mode != "inference":
        return in_iteration(rows, turn)
    when = "setup" if turn < 0 else "decode" if turn else "prefill"
    return merged(replace(row, when="") for row in rows if row.when == when)
