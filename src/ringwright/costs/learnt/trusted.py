"""The most probable time of a call and its intervals, from what systems share and from tables of one's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ringwright.costs.learnt.call import LibraryCall, of_calls
from ringwright.costs.learnt.parts import scattered
from ringwright.costs.learnt.prior import JITTER, Prior, Seen, shipped
from ringwright.costs.nccl.constants import release_numbers
from ringwright.costs.probable_time import NINETY
from ringwright.ground.one_thread import one_thread

HALF = 0.6745  # standard deviations within which 50 % of a normal distribution lie
MOST_POINTS = 2_000  # of one's own tables that are taken in: 32 MB of covariances


@dataclass(frozen=True)
class MeasuredCall:
    """A call whose times were measured, in seconds, one a size."""

    call: LibraryCall
    times_s: tuple[float, ...]


@dataclass(frozen=True)
class Expected:
    """One size of a call: the most probable time, intervals of 50 and 90 %, and what of the question nothing was learnt of.

    ``sigma``: standard deviation of the time's logarithm. ``closed_form_s``: the closed form with the transport's usual numbers.
    """

    size_bytes: int
    p50_s: float
    sigma: float
    closed_form_s: float
    outside: tuple[str, ...] = field(default=())

    def quantile_s(self, deviations: float) -> float:
        """Return the time that many standard deviations above the most probable one."""
        return self.p50_s * math.exp(self.sigma * deviations)

    @property
    def p05_s(self) -> float:
        """Below it lies 5 %."""
        return self.quantile_s(-NINETY)

    @property
    def p95_s(self) -> float:
        """Above it lies 5 %."""
        return self.quantile_s(NINETY)


def expected(
    calls: Sequence[LibraryCall], measured: Sequence[MeasuredCall] = (), prior: Prior | None = None
) -> list[list[Expected]]:
    """Return for each call its sizes' times; ``measured`` tables of the same ``owner`` move them towards its machine.

    UsageError for an operation that has no closed form.
    """
    prior = prior or shipped()
    said = joint(calls, measured, prior)
    answers, at = [], 0
    for call in calls:
        row = []
        for size in call.sizes_bytes:
            away = outside(call, size, prior, measured)
            sigma = math.sqrt(said.covariance[at, at] + said.scatter[at])
            row.append(Expected(size, math.exp(said.logs[at]), sigma, float(said.base_s[at]), away))
            at += 1
        answers.append(row)
    return answers


@dataclass(frozen=True)
class Joint:
    """Several points together, call by call and size by size: what they err by in common cancels between them.

    float64: ``logs``, ln of the most probable seconds, ``base_s``, the closed form, and ``scatter``, the variance that each
    measurement has to itself, of shape (points,); ``covariance`` of ``logs`` of shape (points, points).
    """

    logs: np.ndarray
    covariance: np.ndarray
    scatter: np.ndarray
    base_s: np.ndarray

    def apart(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return by how much the logarithm of each of some points is above each other's, and its standard deviation.

        float64 of shape (rows, rows) both; ``rows`` is int64 of shape (rows,).
        """
        logs = self.logs[rows]
        held = self.covariance[np.ix_(rows, rows)]
        own = np.diag(held) + self.scatter[rows]
        return logs[:, None] - logs[None, :], np.sqrt(np.maximum(own[:, None] + own[None, :] - 2 * held, JITTER))


def joint(calls: Sequence[LibraryCall], measured: Sequence[MeasuredCall] = (), prior: Prior | None = None) -> Joint:
    """Return the sizes of all calls together; ``measured`` tables of the same ``owner`` move them towards its machine.

    UsageError for an operation that has no closed form.
    """
    prior = prior or shipped()
    points = of_calls([*(each.call for each in measured), *calls])
    known = sum(len(each.times_s) for each in measured)
    measured_logs = np.log(np.array([time for each in measured for time in each.times_s]))
    mean, covariance = prior.shared(points)
    covariance += prior.own(points, points)
    asked = slice(known, None)
    held = covariance[asked, asked]
    logs = mean[asked] + np.log(points.base_s[asked])
    if known:
        rows = thinned(known)
        own = covariance[np.ix_(rows, rows)]
        own[np.diag_indices(len(rows))] += scattered(prior.variances, points.at(rows)) + JITTER
        towards = covariance[rows, known:]
        off = measured_logs[rows] - np.log(points.base_s[rows]) - mean[rows]
        with one_thread():
            solved = np.linalg.solve(own, np.column_stack([off, towards]))
            logs = logs + towards.T @ solved[:, 0]
            held = held - towards.T @ solved[:, 1:]
        held[np.diag_indices(len(held))] = np.maximum(np.diag(held), 0.0)
    return Joint(logs, held, scattered(prior.variances, points.at(asked)), points.base_s[asked])


def chance(above: float | np.ndarray, sigma: float | np.ndarray) -> np.ndarray:
    """Return how probable it is that a time is above another one.

    ``above``: the difference of their logarithms, ``sigma``: its standard deviation; float64 of their shape.
    """
    ratio = np.asarray(above, float) / sigma / math.sqrt(2.0)
    chances: np.ndarray = 0.5 * (1.0 + np.vectorize(math.erf, otypes=[float])(ratio))
    return chances


def rising(row: Sequence[Expected]) -> list[Expected]:
    """Return sizes in rising order whose most probable time never falls: a call takes no less time for more bytes.

    Measured tables do fall where NCCL changes its protocol, but where is not learnt; over 150 of them this changes no error.
    """
    made: list[Expected] = []
    for each in sorted(row, key=lambda each: each.size_bytes):
        before_s = made[-1].p50_s if made else 0.0
        made.append(each if each.p50_s >= before_s else replace(each, p50_s=before_s))
    return made


def thinned(known: int) -> np.ndarray:
    """Return which of so many measured points are taken in: all, or evenly ``MOST_POINTS`` of them: int64 of shape (kept,)."""
    if known <= MOST_POINTS:
        return np.arange(known)
    return np.unique(np.linspace(0, known - 1, MOST_POINTS).round().astype(int))


def outside(call: LibraryCall, size_bytes: int, prior: Prior, measured: Sequence[MeasuredCall] = ()) -> tuple[str, ...]:
    """Return what of a question lies outside what was learnt: transport, operation, nodes, size, release, GPU."""
    seen = prior.seen.get(call.carrier)
    own = [each.call for each in measured if each.call.owner == call.owner and each.call.carrier == call.carrier]
    if seen is None and not own:
        return ("transport",)
    held = [*([seen] if seen else []), *(_seen_of(each) for each in own)]
    told = {
        "operation": any(call.op in each.operations for each in held),
        "nodes": _within(call.system.nodes, [each.nodes for each in held]),
        "size": _within(size_bytes, [each.sizes_bytes for each in held]),
        "release": _within(
            release_numbers(call.release), [tuple(map(release_numbers, each.releases)) for each in held]
        ),
        "gpu": call.kind.vendor == "nvidia" and any(call.system.capability in each.capabilities for each in held),
    }
    return tuple(name for name, is_known in told.items() if not is_known)


def _seen_of(call: LibraryCall) -> Seen:
    nodes = call.system.nodes
    sizes = (min(call.sizes_bytes), max(call.sizes_bytes))
    return Seen((call.op,), (nodes, nodes), sizes, (call.release, call.release), (call.system.capability,), 1)


def _within(value: object, ranges: Sequence[tuple[object, ...]]) -> bool:
    return any(low <= value <= high for low, high in ranges)  # type: ignore[operator]
