"""How far predicted steps are from measured ones, row by row, with one fit of efficiencies a device generation.

A row's job is made like any other, condensed (``condensed_workload``), simulated for two steps; operations on a fabric are timed
once for all rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ringwright.calls.provenance import AskedOf, asked_of
from ringwright.costs.probable_time import Probable
from ringwright.engines.job.run import simulate
from ringwright.executors.fan_out import Chosen, FanOut, fan_out
from ringwright.executors.shared import share, shared
from ringwright.ground import stepwise
from ringwright.ground.errors import UsageError
from ringwright.jobs import model_job
from ringwright.jobs.condensed_workload import condensed
from ringwright.jobs.memory import PeakMemory, peak
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.cost_cache import KnownOperations
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.jobs.step_tables import MeasuredStep
from ringwright.jobs.study import NONE, Job, answer

if TYPE_CHECKING:
    from ringwright.model.stages import Costs
    from ringwright.model.topology import Topology

SCHEMA = "ringwright.step-accuracy/1"
STEPS = 2  # the second begins where the first has left everything
ASSUMED = (
    "gradients travel when all are made, beside no compute",
    "exchanges of tensor and expert parallelism stand in line with compute, unless a row says that they overlap",
    "routed tokens come out even over the experts",
)


@dataclass(frozen=True)
class JudgedStep:
    """A measured step beside its prediction, in seconds: that of the condensed job, which is what a fit and factors are made of.

    ``held`` is what a rank is predicted to hold, ``said`` what ``simulate --policy none`` answers for the whole job; None where
    that was not asked, or such steps were not measured.
    """

    row: MeasuredStep
    predicted_s: float
    held: PeakMemory
    said: Probable | None = None

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted_s / self.row.seconds - 1.0


@dataclass
class Predictor:
    """Predicts rows; remembers fabrics and what was timed on them. ``figures`` change the device besides its fit."""

    figures: Mapping[str, float] = field(default_factory=dict)
    topologies: dict[tuple[str, str], Topology] = field(default_factory=dict, repr=False)
    timed: dict[str, dict[Any, Any]] = field(default_factory=dict, repr=False)
    known: dict[tuple[Any, ...], tuple[float, PeakMemory]] = field(default_factory=dict, repr=False)

    def seconds(self, row: MeasuredStep) -> float:
        """Return the predicted seconds of a step; UsageError where the row cannot be."""
        return self.predicted(row)[0]

    def predicted(self, row: MeasuredStep) -> tuple[float, PeakMemory]:
        """Return seconds and memory of a step, once for all rows that ask the same; UsageError where the row cannot be."""
        asked = replace(row, table="", label="", half="", seconds=0.0, dims=())  # type: ignore[arg-type]
        key = (asked, tuple(row.dims.items()), tuple(self.figures.items()))
        if key not in self.known:
            self.known[key] = self._simulated(row)
        return self.known[key]

    def answer(self, row: MeasuredStep) -> Probable | None:
        """Return the most probable step, as every verb tells it, of the whole job, whose gradients travel when all are made."""
        return answer(self._job(row), NONE).probable

    def _simulated(self, row: MeasuredStep) -> tuple[float, PeakMemory]:
        job = self._job(row)
        return simulate(condensed(job.workload, job.costs, row.overlap), job.costs, steps=STEPS).step_s, peak(
            job.workload
        )

    def _job(self, row: MeasuredStep) -> Job:
        card = WorkloadSpec(
            row.model,
            row.gpus,
            row.parallel,
            row.micro_batches,
            row.micro_batch_size,
            row.sequence,
            row.dtype,
            row.gradients,
            row.recompute,
            dims=row.dims,
        )
        question = model_job.GeneratedJobSpec(card, row.device, compute=self.figures, fit=row.fit or None)
        job = model_job.made(question, self.topology(row))
        timed = self.timed.setdefault(f"{row.fabric} {row.calibration}", {})
        costs: Costs = (
            replace(job.costs, known=KnownOperations(timed)) if isinstance(job.costs, FabricCosts) else job.costs
        )
        return replace(job, costs=costs)

    def topology(self, row: MeasuredStep) -> Topology:
        """Return the machine of a row, once for all rows on it."""
        key = (row.fabric, row.calibration)
        if key not in self.topologies:
            from ringwright.costs.calibration import calibrated, load
            from ringwright.fabrics import fabric

            made = fabric(row.fabric)
            self.topologies[key] = calibrated(made, load(row.calibration)) if row.calibration else made
        return self.topologies[key]


@dataclass(frozen=True)
class RefusedStep:
    """A row that cannot be simulated as it stands, and why."""

    row: MeasuredStep
    why: str


def judge(
    rows: Sequence[MeasuredStep],
    predictor: Predictor | None = None,
    progress: stepwise.Advance | None = None,
    *,
    answers: bool = False,
    executor: Chosen | FanOut = None,
) -> tuple[list[JudgedStep], list[RefusedStep]]:
    """Return each row beside its prediction, by ``executor``, and those whose parallel form the model refuses.

    ``answers``: beside what ``simulate`` answers too, which takes several times as long.
    """
    predictor = predictor or Predictor()
    figures = dict(predictor.figures)
    share(predictor, Predictor, figures)
    given = [(row, figures, answers) for row in rows]
    with fan_out(executor) as fan:
        told = fan.map(predicted_step, given, title=lambda row, *_: row.label, progress=progress)
    judged, refused = list[JudgedStep](), list[RefusedStep]()
    for row, each in zip(rows, told, strict=True):
        if each.held is None:
            refused.append(RefusedStep(row, each.why))
        else:
            judged.append(JudgedStep(row, each.seconds, each.held, each.said))
    return judged, refused


@dataclass(frozen=True)
class PredictedStep:
    """What is predicted of a row, as of ``JudgedStep``; ``why`` where it is refused."""

    seconds: float = 0.0
    held: PeakMemory | None = None
    said: Probable | None = None
    why: str = ""


def predicted_step(row: MeasuredStep, figures: dict[str, float], answers: bool) -> PredictedStep:
    """Return what is predicted of a row, and with ``answers`` what ``simulate`` says."""
    predictor = shared(Predictor, figures)  # what it has timed serves the next row too
    try:
        return PredictedStep(*predictor.predicted(row), predictor.answer(row) if answers else None)
    except UsageError as error:
        return PredictedStep(why=error.what)


def median(judged: Sequence[JudgedStep]) -> float:
    """Return the median of abs(error); 0 for no rows."""
    return statistics.median(abs(each.error) for each in judged) if judged else 0.0


def groups(judged: Sequence[JudgedStep]) -> dict[tuple[str, str, str], list[JudgedStep]]:
    """Return the rows by table, device and half."""
    by_group: dict[tuple[str, str, str], list[JudgedStep]] = {}
    for each in judged:
        by_group.setdefault((each.row.table, each.row.device, each.row.half), []).append(each)
    return dict(sorted(by_group.items()))


def document(judged: Sequence[JudgedStep], refused: Sequence[RefusedStep] = ()) -> dict[str, Any]:
    """Return the object of schema ``ringwright.step-accuracy/1``: medians by table, device and half, and every row."""
    from ringwright.costs.fits import load

    fits = dict.fromkeys(each.row.fit for each in judged if each.row.fit)
    return {
        "schema": SCHEMA,
        "asked": _asked(judged),
        "fits": [load(name).provenance for name in fits],
        "assumptions": list(ASSUMED),
        "median_abs_error": median(judged),
        "groups": [
            {
                "table": table,
                "device": device,
                "half": half,
                "rows": len(mine),
                "median_abs_error": median(mine),
                "median_error": statistics.median(each.error for each in mine),
                "worst_abs_error": max(abs(each.error) for each in mine),
            }
            for (table, device, half), mine in groups(judged).items()
        ],
        "rows": [
            {
                "table": each.row.table,
                "row": each.row.label,
                "device": each.row.device,
                "gpus": each.row.gpus,
                "half": each.row.half,
                "overlap": [*each.row.overlap],
                "measured_s": each.row.seconds,
                "predicted_s": each.predicted_s,
                "error": each.error,
                **each.held,
                **_said(each.said),
            }
            for each in judged
        ],
        "refused": [{"table": each.row.table, "row": each.row.label, "why": each.why} for each in refused],
    }


def _asked(judged: Sequence[JudgedStep]) -> AskedOf:
    """Return which machines the rows are predicted on, and by which calibrations."""
    on = Predictor()
    asked = asked_of(None, networks={each.row.fabric: on.topology(each.row) for each in judged})
    asked["calibration"] = ", ".join(sorted({each.row.calibration for each in judged} - {""})) or None
    return asked


def _said(said: Probable | None) -> dict[str, float | None]:
    """Return the most probable step and its interval as keys of a row, in us."""
    ends = (None,) * 3 if said is None else (said.p05_us, said.p50_us, said.p95_us)
    return dict(zip(("step_us_p05", "step_us_p50", "step_us_p95"), ends, strict=True))


def fitted(
    rows: Sequence[MeasuredStep], steps: Mapping[str, Sequence[float]], predictor: Predictor | None = None
) -> tuple[dict[str, float], float]:
    """Return the figures of the grid ``steps`` (name -> values) with the least error, and that error.

    The error is the mean of abs(log(predicted / measured)); only rows of the half "fit" count, and every table
    alike, however many rows it has.
    """
    import itertools
    import math

    predictor = predictor or Predictor()
    mine = [row for row in rows if row.half == "fit"]
    best: tuple[float, dict[str, float]] = (math.inf, {})
    for values in itertools.product(*steps.values()):
        predictor.figures = dict(zip(steps, values, strict=True))
        tables: dict[str, list[float]] = {}
        for each in judge(mine, predictor)[0]:
            tables.setdefault(each.row.table, []).append(abs(math.log(each.predicted_s / each.row.seconds)))
        mean = statistics.fmean(statistics.fmean(logs) for logs in tables.values()) if tables else math.inf
        best = min(best, (mean, dict(predictor.figures)), key=lambda each: each[0])
    return best[1], best[0]
