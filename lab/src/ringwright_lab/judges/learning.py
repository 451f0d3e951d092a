"""Learn the model from measured calls: the variances of its parts by their likelihood, then what all systems share.

Needs scipy (extra ``solve``). ``scripts/learn-prior`` runs it and writes ``prior.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringwright.costs.learnt.call import LibraryCall, Points, of_calls
from ringwright.costs.learnt.parts import PARTS, SCATTERS, CovarianceFactors, scatter_of, scattered, spread, summed
from ringwright.costs.learnt.prior import JITTER, Prior, Seen, anchors, to_anchors
from ringwright.costs.learnt.trusted import MeasuredCall
from ringwright.costs.nccl.constants import release_numbers
from ringwright.ground.errors import MissingExtraError

LEAST, MOST, LIKELY = 1e-5, 3.0, 1e-2  # of a variance; LIKELY is where one stays of which the tables say nothing
LOOSE = 3.0  # standard deviations of a variance's logarithm around LIKELY
DROPPED = 1e-2  # of a logarithm's variance: what may be forgotten at any anchor of how certain tables made it


def _scipy() -> tuple[Any, Any]:
    try:
        from scipy import linalg, optimize
    except ImportError:
        raise MissingExtraError("learning from tables needs SciPy", extra="solve") from None
    return optimize, linalg


@dataclass(frozen=True)
class Tables:
    """Measured calls as points, with ``logs``: of the measured time over the closed form's, float64 of shape (points,)."""

    points: Points
    logs: np.ndarray

    def at(self, which: np.ndarray) -> Tables:
        """Return some of them; bool or int64 of shape (points,)."""
        return Tables(self.points.at(which), self.logs[which])


def tables_of(measured: Sequence[MeasuredCall]) -> Tables:
    """Return measured calls as points."""
    points = of_calls([each.call for each in measured])
    times = np.array([time for each in measured for time in each.times_s])
    return Tables(points, np.log(times / points.base_s))


def variances_of(tables: Tables, *, rounds: int = 25, begin: dict[str, float] | None = None) -> dict[str, float]:
    """Return the variance of each part and scatter that makes the tables most likely (L-BFGS on logarithms, exact gradient)."""
    optimize, linalg = _scipy()
    names = [*(part.name for part in PARTS), *SCATTERS]
    count, logs = len(tables.points), tables.logs
    held = [part.covariance(CovarianceFactors(tables.points, tables.points)).astype(np.float32) for part in PARTS]
    kinds = scatter_of(tables.points)

    def unlikely(at: np.ndarray) -> tuple[float, np.ndarray]:
        variances = np.exp(at)
        covariance = np.zeros((count, count))
        for variance, part in zip(variances, held, strict=False):
            covariance += variance * part
        covariance[np.diag_indices(count)] += variances[len(PARTS) :][kinds] + JITTER
        factor = linalg.cho_factor(covariance, lower=True)
        weights = linalg.cho_solve(factor, logs)
        turned = (np.outer(weights, weights) - linalg.cho_solve(factor, np.eye(count))).astype(np.float32)
        slope = [
            -0.5 * variance * float(np.vdot(turned, part)) for variance, part in zip(variances, held, strict=False)
        ]
        each = np.diag(turned)
        slope += [
            -0.5 * variances[len(PARTS) + kind] * float(each[kinds == kind].sum()) for kind in range(len(SCATTERS))
        ]
        pull = (at - np.log(LIKELY)) / LOOSE
        value = 0.5 * float(logs @ weights) + float(np.log(np.diag(factor[0])).sum()) + 0.5 * float(pull @ pull)
        return value, np.array(slope) + pull / LOOSE

    start = np.log([(begin or {}).get(name, 0.03) for name in names])
    bounds = [(np.log(LEAST), np.log(MOST))] * len(names)
    best = optimize.minimize(unlikely, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": rounds})
    return {name: float(np.exp(value)) for name, value in zip(names, best.x, strict=True)}


def variances_without(tables: Tables, which: np.ndarray, rounds: int, begin: dict[str, float]) -> dict[str, float]:
    """Return the variances that make all but some of the tables (``which``: bool) most likely: a task."""
    return variances_of(tables.at(~which), rounds=rounds, begin=begin)


def left_out(tables: Tables, variances: dict[str, float], which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what the other points say of some (``which``: bool): means and deviations of logs, float64 of shape (asked,)."""
    _, linalg = _scipy()
    known, asked = tables.at(~which), tables.points.at(which)
    covariance = summed(PARTS, variances, known.points, known.points)
    covariance[np.diag_indices(len(covariance))] += scattered(variances, known.points) + JITTER
    factor = linalg.cho_factor(covariance, lower=True)
    towards = summed(PARTS, variances, known.points, asked)
    mean = towards.T @ linalg.cho_solve(factor, known.logs)
    less = (towards * linalg.cho_solve(factor, towards)).sum(axis=0)
    variance = np.maximum(spread(PARTS, variances, asked) - less, 0.0) + scattered(variances, asked)
    return mean, np.sqrt(variance)


def prior_of(measured: Sequence[MeasuredCall], variances: dict[str, float]) -> Prior:
    """Return what ships: the shared part at the anchors, given the tables."""
    _, linalg = _scipy()
    tables, held = tables_of(measured), anchors()
    covariance = summed(PARTS, variances, tables.points, tables.points)
    covariance[np.diag_indices(len(covariance))] += scattered(variances, tables.points) + JITTER
    lower = linalg.cholesky(covariance, lower=True)
    towards = linalg.solve_triangular(lower, to_anchors(variances, held, tables.points).T, lower=True).T
    mean = towards @ linalg.solve_triangular(lower, tables.logs, lower=True)
    left, sizes, _ = np.linalg.svd(towards, full_matrices=False)
    # What is forgotten if all directions from this one on are.
    forgotten = np.cumsum((left * sizes)[:, ::-1] ** 2, axis=1)[:, ::-1].max(axis=0)
    kept = int((forgotten > DROPPED).sum())
    calls = [each.call for each in measured]
    return Prior(
        tuple(sorted({call.owner for call in calls})),
        {
            name: _seen([call for call in calls if call.carrier == name])
            for name in sorted({call.carrier for call in calls})
        },
        variances,
        tuple(mean.tolist()),
        tuple(tuple(row) for row in (left[:, :kept] * sizes[:kept]).tolist()),
    )


def _seen(calls: Sequence[LibraryCall]) -> Seen:
    sizes = [size for call in calls for size in call.sizes_bytes]
    releases = sorted((call.release for call in calls), key=release_numbers)
    nodes = [call.system.nodes for call in calls]
    return Seen(
        tuple(sorted({call.op for call in calls})),
        (min(nodes), max(nodes)),
        (min(sizes), max(sizes)),
        (releases[0], releases[-1]),
        tuple(sorted({call.system.capability for call in calls})),
        len({call.owner for call in calls}),
    )
