"""The small programs that instructions are made of: by the algorithm that is asked for, or by the usual one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ringwright.algorithms.blocks.pipeline import best_segments, pipeline
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.model.collective import ROOTED, Collective

if TYPE_CHECKING:
    from ringwright.algorithms.compose import Algorithm
    from ringwright.algorithms.ring_steps import Rings
    from ringwright.model.program import Program

MOST_SEGMENTS = 64


@dataclass(frozen=True)
class SmallPrograms:
    """Algorithms for what has no root and for what has one, the first that can do it does it.

    ``machine`` says into how many segments a pipeline cuts what it carries.
    """

    plain: Sequence[Algorithm]
    rooted: Sequence[Algorithm]
    machine: Rings
    dtype: str = "float32"

    def __call__(self, op: str, ranks: int, size_bytes: int) -> Program:
        """Return an operation among so many ranks; UsageError where no algorithm does it without slots of its own."""
        collective = Collective(op, range(ranks), size_bytes, self.dtype)
        why: list[str] = []
        for each in self.rooted if op in ROOTED else self.plain:
            try:
                made = self._settled(each, collective)(collective)
            except (UsageError, InfeasibleError) as error:
                why.append(error.what)
                continue
            if made.layout.slots <= made.layout.n_chunks and made.layout.before is None and made.layout.after is None:
                return made
            why.append(f"{made.name} needs slots of its own beside the data")
        raise UsageError(f"no algorithm does the {op} of an instruction: {'; '.join(why)}", remedy="inner=ring")

    def _settled(self, algorithm: Algorithm, collective: Collective) -> Algorithm:
        """Return the algorithm; a pipeline that is given no segments cuts the data into as many as suit the machine."""
        if algorithm is not pipeline:
            return algorithm
        beta = self.machine.beta_s if math.isfinite(self.machine.beta_s) else 0.0
        best = best_segments(collective.p, collective.size_bytes, max(self.machine.alpha_s, 1e-9), beta)
        elements = collective.size_bytes // collective.unit_bytes
        segments = max(1, min(1 << round(math.log2(best)), MOST_SEGMENTS, elements))
        return partial(pipeline, segment_bytes=-(-collective.size_bytes // segments))
