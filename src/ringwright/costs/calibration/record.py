"""The Calibration: its numbers, its ground, and its file (JSON, schema ``ringwright.calibration/1``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import msgspec

from ringwright.costs.nccl.timing import NcclOverride
from ringwright.costs.transports import OF_PRODUCTS, carrier
from ringwright.ground import drafts
from ringwright.ground.errors import InputError, UsageError
from ringwright.ground.notebook import table

SCHEMA = "ringwright.calibration/1"
_LARGEST_FILE = 1 << 20


class LinkClassCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link class: seconds of a hop, seconds that one message occupies its sender, bytes per second.

    The rate is of a GPU one way inside a node, and of all NICs of a node, one way, outside.
    """

    latency_s: float
    message_s: float
    rate_bytes_per_s: float


@dataclass(frozen=True)
class MeasuredTimes:
    """Times of one operation on one fabric (``dgx-a100:2``) with one release; ``forced``: what the environment asked of NCCL."""

    op: str
    fabric: str
    release: str
    sizes_bytes: tuple[int, ...]
    times_s: tuple[float, ...]
    forced: NcclOverride | None = None

    def at(self, places: Sequence[int]) -> MeasuredTimes:
        """Return some of its sizes."""
        sizes = tuple(self.sizes_bytes[index] for index in places)
        times = tuple(self.times_s[index] for index in places)
        return MeasuredTimes(self.op, self.fabric, self.release, sizes, times, self.forced)


class Calibration(msgspec.Struct, frozen=True):
    """Link numbers with their ground.

    ``error`` is the geometric mean over the sizes fitted (64 KiB and more, all where there are none) of
    max(t_sim/t, t/t_sim) - 1, ``error_p90`` its 90th percentile. ``tables``: what it was fitted to.
    """

    name: str
    fabric: str
    release: str
    inside: LinkClassCosts | None
    outside: LinkClassCosts | None
    source: str
    date: str
    transport: str = ""
    operations: tuple[str, ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    error: float = 0.0
    error_p90: float = 0.0
    tables: tuple[MeasuredTimes, ...] = ()

    def _repr_html_(self) -> str:
        classes = {"inside a node": self.inside, "between nodes": self.outside}
        rows = [
            (name, f"{each.rate_bytes_per_s / 1e9:,.4g}", f"{each.latency_s * 1e6:,.3g}")
            for name, each in classes.items()
            if each is not None
        ]
        return table(self.provenance, (f"links of {self.fabric}", "GB/s", "us a hop"), rows)

    @property
    def carrier(self) -> str:
        """The transport between its nodes: what it says, else what its product comes with, else empty."""
        return carrier(self.transport, OF_PRODUCTS.get(self.fabric.partition(":")[0], ""))

    @property
    def provenance(self) -> str:
        """One line for the ground of an answer."""
        return (
            f"calibration {self.name}: {self.source}, {self.date or 'undated'}, NCCL {self.release}, "
            f"{len(self.sizes_bytes)} sizes, fitted within {self.error:.1%}"
        )


def save(calibration: Calibration, path: str | Path) -> None:
    """Write a calibration as JSON."""
    drafts.write(path, json.dumps(document_of(calibration), indent=1) + "\n")


def document_of(calibration: Calibration) -> Mapping[str, object]:
    """Return the object of a calibration's file."""
    return {"schema": SCHEMA, **msgspec.to_builtins(calibration)}


def names() -> tuple[str, ...]:
    """Return the calibrations that ship with the package."""
    folder = resources.files("ringwright.costs.calibration") / "shipped"
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


def load(name_or_path: str | Path) -> Calibration:
    """Return the calibration of that name, or in that file; UsageError for neither, InputError for a file unfit."""
    path = Path(name_or_path)
    if str(name_or_path) in names():
        shipped = resources.files("ringwright.costs.calibration") / "shipped" / f"{name_or_path}.json"
        return _parsed(shipped.read_bytes(), str(name_or_path))
    if not path.is_file():
        raise UsageError(
            f"no calibration and no file is called '{name_or_path}'",
            remedy=f"ringwright list calibrations; one of {', '.join(names())}, or make one:"
            " ringwright calibrate TABLE --fabric dgx-a100:2 -o mine.json",
        )
    if path.stat().st_size > _LARGEST_FILE:
        raise InputError("a calibration is not that large", where=str(path), remedy="ringwright calibrate --help")
    return _parsed(path.read_bytes(), str(path))


def _parsed(data: bytes, where: str) -> Calibration:
    try:
        document = msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise _no_calibration(error, where) from error
    return of_document(document, where)


def _no_calibration(error: msgspec.MsgspecError, where: str) -> InputError:
    return InputError(f"this is no calibration: {error}", where=where, remedy="ringwright calibrate --help")


def of_document(document: object, where: str) -> Calibration:
    """Return the calibration of its file's object; InputError, which names ``where`` it stands, for any other."""
    try:
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise InputError(f"the schema is not {SCHEMA}", where=where, remedy="ringwright calibrate --help")
        calibration = msgspec.convert({key: value for key, value in document.items() if key != "schema"}, Calibration)
    except msgspec.MsgspecError as error:
        raise _no_calibration(error, where) from error
    for link in (calibration.inside, calibration.outside):
        if link is not None and (min(link.latency_s, link.message_s) < 0 or not 0 < link.rate_bytes_per_s < 1e18):
            raise InputError(f"{link} is not a link", where=where, remedy="times are not negative, rates are above 0")
    for told in calibration.tables:
        if len(told.sizes_bytes) != len(told.times_s) or min((*told.sizes_bytes, *told.times_s), default=0) <= 0:
            raise InputError(f"its table of {told.op} has no time above 0 for each size", where=where)
    return calibration
