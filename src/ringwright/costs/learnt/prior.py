"""What all systems share, as it ships: its mean and what is still uncertain of it at anchors, and the variances of all parts.

``learning`` makes it from measured tables. It holds no measured time: the model's state, and the names of what it learnt from.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np

from ringwright.costs.learnt.call import LEARNT_OPS, MEDIUM, NUMBERS, WHERE, Points
from ringwright.costs.learnt.parts import OWN, PARTS, SCATTERS, SHARED_CURVES, SHARED_WEIGHTS, summed
from ringwright.costs.transports import MEDIA, TRANSPORTS
from ringwright.ground.errors import InputError
from ringwright.ground.one_thread import one_thread

SCHEMA = "ringwright.prior/1"
JITTER = 1e-6
ANCHOR_BYTES = (64, 4 << 10, 256 << 10, 16 << 20, 1 << 30, 32 << 30)
ANCHOR_NODES = (2, 16, 128, 1024)
ANCHOR_SPREADS = (-1.0, 0.6, 2.2)  # what stands for nodes in one node: of 3, 13 and 67 ranks


class Seen(msgspec.Struct, frozen=True):
    """What was measured over one transport: operations, the least and most nodes, bytes and releases, and of how many systems."""

    operations: tuple[str, ...]
    nodes: tuple[int, int]
    sizes_bytes: tuple[int, int]
    releases: tuple[str, str]
    capabilities: tuple[int, ...]
    systems: int


class Prior(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """The learnt model: ``variances`` of parts and of single times, ``mean`` of the shared part at the anchors, and ``lessened``.

    ``lessened`` (anchors, r): by its outer product the tables made the shared part's covariance at the anchors smaller.
    ``seen`` by transport; ``systems`` whose tables it was learnt from.
    """

    systems: tuple[str, ...]
    seen: dict[str, Seen]
    variances: dict[str, float]
    mean: tuple[float, ...]
    lessened: tuple[tuple[float, ...], ...]

    @cached_property
    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and ``lessened`` as weights of covariances with anchors: float64 of shape (anchors,) and (anchors, r)."""
        points = anchors()
        held = anchored(self.variances, points)
        held[np.diag_indices(len(held))] += JITTER
        both = np.concatenate([np.array(self.mean)[:, None], np.array(self.lessened)], axis=1)
        with one_thread():
            solved = np.linalg.solve(held, both)
        return solved[:, 0], solved[:, 1:]

    def shared(self, points: Points) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared part, of ln time: float64 of shape (points,) and (points, points)."""
        mean, less = self.known
        towards = to_anchors(self.variances, anchors(), points)
        with one_thread():
            lessened = towards.T @ less
            lessening, expected = lessened @ lessened.T, towards.T @ mean
        covariance = summed((*SHARED_CURVES, *SHARED_WEIGHTS), self.variances, points, points) - lessening
        return expected, covariance

    def own(self, one: Points, other: Points) -> np.ndarray:
        """Return the covariance of what owners, settings and tables have to themselves. float64 of shape (one, other)."""
        return summed(OWN, self.variances, one, other)


@lru_cache(maxsize=1)
def anchors() -> Points:
    """Return the points at which the shared curves are held: every transport, operation, and a few sizes and nodes."""
    between = np.log(np.array(ANCHOR_NODES, float)).tolist()
    grid = [
        (name, op, size, nodes)
        for name in TRANSPORTS
        for op in range(len(LEARNT_OPS))
        for size in ANCHOR_BYTES
        for nodes in (ANCHOR_SPREADS if name == "nvlink" else between)
    ]
    count = len(grid)
    none = np.zeros(count, np.int64)
    return Points(
        medium=np.array([MEDIUM[name] for name, *_ in grid]),
        transport=np.array([WHERE[name] for name, *_ in grid]),
        op=np.array([op for _, op, *_ in grid]),
        size=np.log(np.array([size for *_, size, _ in grid], float)),
        nodes=np.array([nodes for *_, nodes in grid], float),
        base_s=np.ones(count),
        follows=np.zeros((count, NUMBERS)),
        owner=none,
        setting=none,
        table=none,
    )


def anchored(variances: dict[str, float], points: Points) -> np.ndarray:
    """Return the covariance of what is held: curves, then each shared weight in each medium. float64 of shape (held, held)."""
    curves = summed(SHARED_CURVES, variances, points, points)
    weights = [variances[part.name] for part in SHARED_WEIGHTS for _ in MEDIA]
    made = np.zeros((len(curves) + len(weights),) * 2)
    made[: len(curves), : len(curves)] = curves
    made[np.arange(len(curves), len(made)), np.arange(len(curves), len(made))] = weights
    return made


def to_anchors(variances: dict[str, float], held: Points, points: Points) -> np.ndarray:
    """Return the covariance of what is held at the anchors with points. float64 of shape (held, points)."""
    rows = [
        variances[part.name] * points.follows[:, part.number or 0] * (points.medium == medium)
        for part in SHARED_WEIGHTS
        for medium in range(len(MEDIA))
    ]
    return np.concatenate([summed(SHARED_CURVES, variances, held, points), np.array(rows)])


@lru_cache(maxsize=1)
def shipped() -> Prior:
    """Return the prior that ships with the package."""
    return parsed((resources.files("ringwright.costs.learnt") / "prior.json").read_bytes(), "prior.json")


def parsed(data: bytes, where: str | Path) -> Prior:
    """Return a prior from its file; InputError for what is none."""
    try:
        document = msgspec.json.decode(data)
        if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
            raise InputError(f"the schema is not {SCHEMA}", where=str(where))
        prior = msgspec.convert(document, Prior)
    except msgspec.MsgspecError as error:
        raise InputError(f"this is no prior: {error}", where=str(where)) from error
    wanted = {*(part.name for part in PARTS), *SCATTERS}
    count = len(anchors()) + len(SHARED_WEIGHTS) * len(MEDIA)
    if set(prior.variances) != wanted or len(prior.mean) != count or len(prior.lessened) != count:
        raise InputError("this prior is of other parts or anchors", where=str(where))
    return prior


def written(prior: Prior) -> bytes:
    """Return the file of a prior: numbers of three digits."""
    document = {"schema": SCHEMA, **msgspec.to_builtins(prior)}
    document["variances"] = {name: float(f"{number:.3g}") for name, number in prior.variances.items()}
    document["mean"] = [_short(number) for number in prior.mean]
    document["lessened"] = [[_short(number) for number in row] for row in prior.lessened]
    return msgspec.json.encode(document) + b"\n"


def _short(number: float) -> float:
    return float(f"{number:.3g}") if abs(number) > 5e-5 else 0.0
