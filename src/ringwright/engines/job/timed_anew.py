"""The same workload asked of other costs: what was laid out stays, and only what operations take and load is written again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.job.arrays import timed_flat
from ringwright.engines.job.sending import Sending
from ringwright.engines.job.step import REAL, WHOLE, StepBuilder, earliest

if TYPE_CHECKING:
    from ringwright.engines.job.layout import Laid
    from ringwright.engines.job.reuse import WrittenStep
    from ringwright.engines.job.sending import PhaseTiming
    from ringwright.model.stages import Costs
    from ringwright.model.workload import Workload

FIRST, SMS = WHOLE.index("work"), REAL.index("sms")
LOADS = WHOLE.index("loads")


def timed_anew(
    laid: Laid, written: WrittenStep, workload: Workload, costs: Costs, watched: Iterable[int]
) -> Laid | None:
    """Return a laid-out job as other costs time it; None where an operation has other phases by them."""
    before, watched = written.step, tuple(watched)
    mark = written.behind_tasks
    step = replace(
        before,
        whole=before.whole[:],
        real=before.real[:],
        loads=earliest(before.loads, mark.loads),
        resources=earliest(before.resources, mark.resources),
    )
    rows = [at for at, band in enumerate(before.bands) if band.what == "operation"]
    sending = Sending(workload, costs, written.sending.groups, written.tasks, written.sending.operations)
    phases, timings = [], []
    for phase, timing in sending.timed(step):
        phases.append(phase)
        timings.append(timing)
    if phases != [before.bands[at].phase for at in rows]:
        return None
    _write(step, rows, timings)
    numbers = {link: step.resources.get((-1, f"link {link}")) for link in watched}
    resource_of = {link: number for link, number in numbers.items() if number is not None}
    flat = timed_flat(laid.flat, step, laid.steps, resource_of.values())
    return replace(laid, flat=flat, resource_of=resource_of)


def _write(step: StepBuilder, rows: list[int], timings: Sequence[PhaseTiming]) -> None:
    """Put work and latency, units and loads of operations in the place of those that were written."""
    if not rows:
        return
    table = np.array(timings, object)
    whole = np.frombuffer(step.whole, np.int64).reshape(-1, len(WHOLE))
    real = np.frombuffer(step.real, np.float64).reshape(-1, len(REAL))
    whole[rows, FIRST : FIRST + 4] = table[:, :4].astype(np.int64)
    real[rows, SMS] = table[:, 4].astype(np.float64)
    whole[rows, LOADS] = table[:, 5].astype(np.int64)
