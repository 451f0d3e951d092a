"""Alerts of a running job: rules of a TOML file, each asked at every look.

A rule names a metric, a threshold (``above`` or ``below``), for how many looks in a row it must be crossed, and of what: an
operation, a class of sizes, a rank, a host, a NIC. A metric that is not known at a look neither raises an alert nor ends one.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypedDict

from ringwright.capture.live.live_late import named
from ringwright.ground.errors import InputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ringwright.capture.live.following import Snapshot

EXAMPLE = '[[alert]] metric = "gbs", op = "all-reduce", below = 10.0, looks = 3'
MOST_BYTES = 1 << 20
MOST_RULES = 1000


class FiredAlert(TypedDict):
    """A rule that holds at a look: the value that crossed, and for how many looks in a row one has."""

    name: str
    metric: str
    of: str
    value: float
    threshold: float
    side: str  # above, below
    looks: int
    text: str


@dataclass(frozen=True)
class AlertRule:
    """One rule of a file; a filter that is empty or None leaves all in."""

    metric: str
    above: float | None = None
    below: float | None = None
    looks: int = 1
    name: str = ""
    op: str = ""
    size: str = ""  # a class of sizes, as the Prometheus textfile spells it: 1-2MB
    rank: int | None = None
    host: str = ""
    nic: str = ""

    @property
    def title(self) -> str:
        """Its name, or what it asks."""
        of = [str(getattr(self, each)) for each in ("op", "size", "host", "nic") if getattr(self, each)]
        rank = [f"rank {self.rank}"] if self.rank is not None else []
        return self.name or " ".join([self.metric, *of, *rank])


@dataclass(frozen=True)
class LiveMetric:
    """What a metric is, which filters it takes, and its values at a look, each with whose it is."""

    what: str
    filters: tuple[str, ...]
    values: Callable[[Snapshot, AlertRule], Iterable[tuple[str, float | None]]]


def _calls(snapshot: Snapshot, rule: AlertRule) -> Iterable[tuple[str, float | None]]:
    """Sum over operations; with a class of sizes over what is new in it, 0 where nothing is."""
    if not rule.size:
        rows = [row["per_s"] for row in snapshot.operations if rule.op in ("", row["op"])]
    else:
        rows = [row["per_s"] for row in _of_size(snapshot, rule)]
    return [(rule.op or "all operations", _total(rows, snapshot, rule))]


def _gbs(snapshot: Snapshot, rule: AlertRule) -> Iterable[tuple[str, float | None]]:
    if not rule.size:
        rows = [row["gbs"] for row in snapshot.operations if rule.op in ("", row["op"])]
    else:
        rows = [row["gbs"] for row in _of_size(snapshot, rule)]
    return [(rule.op or "all operations", _total(rows, snapshot, rule))]


def _of_size(snapshot: Snapshot, rule: AlertRule) -> list[Any]:
    return [row for row in snapshot.sizes if rule.op in ("", row["op"]) and row["message_size"] == rule.size]


def _total(values: Sequence[float | None], snapshot: Snapshot, rule: AlertRule) -> float | None:
    """Return the sum of what is known. None: no rate is known yet, or the operation has not been seen."""
    known = [value for value in values if value is not None]
    if known:
        return sum(known)
    has_rates = any(row["per_s"] is not None for row in snapshot.operations if rule.op in ("", row["op"]))
    return 0.0 if has_rates and rule.size else None


def _nics(snapshot: Snapshot, rule: AlertRule) -> Iterable[tuple[str, float | None]]:
    for row in snapshot.nics:
        if rule.host in ("", row["host"]) and rule.nic in ("", row["nic"]):
            sent, received = row["sent_gbs"], row["received_gbs"]
            yield f"{row['host']} NIC {row['nic']}", None if sent is None or received is None else max(sent, received)


def _late(name: str) -> Callable[[Snapshot, AlertRule], Iterable[tuple[str, float | None]]]:
    def values(snapshot: Snapshot, rule: AlertRule) -> Iterable[tuple[str, float | None]]:
        rows: list[Any] = [
            row for row in snapshot.late if rule.rank in (None, row["rank"]) and rule.host in ("", row["host"])
        ]
        if not rows and snapshot.trace is not None:
            return [("no rank", 0.0)]
        return [(f"{named(row)} in communicator {row['communicator']}", float(row[name])) for row in rows]

    return values


METRICS = {
    "calls_per_s": LiveMetric("calls a second since the look before", ("op", "size"), _calls),
    "gbs": LiveMetric("1e9 bytes a second since the look before", ("op", "size"), _gbs),
    "nic_gbs": LiveMetric("1e9 bytes a second of a NIC, the larger of sent and received", ("host", "nic"), _nics),
    "behind": LiveMetric(
        "calls that a rank is behind the foremost of its communicator", ("rank", "host"), _late("behind")
    ),
    "still_looks": LiveMetric(
        "looks in a row that a rank is behind and has not moved", ("rank", "host"), _late("still_looks")
    ),
    "quiet_s": LiveMetric(
        "seconds since any file has grown", (), lambda snapshot, _: [("all files", snapshot.quiet_s)]
    ),
    "errors": LiveMetric(
        "errors in the recording", (), lambda snapshot, _: [("the recording", float(snapshot.errors))]
    ),
}
_KEYS = {each.name for each in fields(AlertRule)}
_FILTERS = ("op", "size", "rank", "host", "nic")


def read_rules(path: Path) -> list[AlertRule]:
    """Return the rules of a TOML file.

    Raises
    ------
    InputError
        The file cannot be read, or is no TOML.
    UsageError
        A key, a metric or a value is none; the message names the nearest that there is.
    """
    try:
        data = path.read_bytes()
        if len(data) > MOST_BYTES:
            raise InputError(f"larger than {MOST_BYTES >> 20} MiB", where=str(path), remedy="fewer rules")
        document = tomllib.loads(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"no rules: {error}", where=str(path), remedy=f"a file with {EXAMPLE}") from None
    _only(document, {"alert"}, str(path))
    listed = document.get("alert", [])
    if not isinstance(listed, list) or not listed or len(listed) > MOST_RULES:
        raise UsageError("no rule", where=str(path), remedy=EXAMPLE)
    return [_rule(each, f"{path}: rule {number}") for number, each in enumerate(listed, 1)]


def _rule(told: object, where: str) -> AlertRule:
    if not isinstance(told, dict):
        raise UsageError("a rule is a table", where=where, remedy=EXAMPLE)
    _only(told, _KEYS, where)
    metric = told.get("metric")
    if metric not in METRICS:
        raise UsageError(f"no metric is '{metric}'{_nearest(metric, METRICS)}", where=where, remedy=", ".join(METRICS))
    for name, value in told.items():
        if not _fits(name, value):
            raise UsageError(f"{name} cannot be {value!r}", where=where, remedy=EXAMPLE)
    rule = AlertRule(**{str(name): value for name, value in told.items()})
    if (rule.above is None) == (rule.below is None):
        raise UsageError("a rule has one threshold", where=where, remedy="above = X, or below = X")
    strange = [name for name in _FILTERS if name in told and name not in METRICS[rule.metric].filters]
    if strange:
        takes = ", ".join(METRICS[rule.metric].filters) or "no filter"
        raise UsageError(f"{rule.metric} is of no {strange[0]}", where=where, remedy=f"{rule.metric} takes {takes}")
    return rule


def _fits(name: str, value: object) -> bool:
    if name in ("above", "below"):
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if name in ("looks", "rank"):
        return isinstance(value, int) and not isinstance(value, bool) and value >= (name == "looks")
    return isinstance(value, str)


def _only(told: Mapping[str, object], known: Iterable[str], where: str) -> None:
    for name in told:
        if name not in known:
            raise UsageError(f"no key is '{name}'{_nearest(name, known)}", where=where, remedy=", ".join(sorted(known)))


def _nearest(name: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), [*known], 1, 0.5)
    return f": did you mean {near[0]}?" if near else ""


@dataclass
class AlertWatch:
    """Asks rules at every look, and remembers for how many looks in a row each has held."""

    rules: Sequence[AlertRule]
    held: dict[tuple[int, str], int] = field(default_factory=dict)  # rule and of what, to looks in a row

    def look(self, snapshot: Snapshot) -> list[FiredAlert]:
        """Return the alerts of a look."""
        fired: list[FiredAlert] = []
        for number, rule in enumerate(self.rules):
            values = METRICS[rule.metric].values(snapshot, rule)
            told = {of: value for of, value in values if value is not None}
            crossed = {of: value for of, value in told.items() if _is_crossed(rule, value)}
            for key in [key for key in self.held if key[0] == number and told and key[1] not in crossed]:
                del self.held[key]
            for of, value in crossed.items():
                looks = self.held[number, of] = self.held.get((number, of), 0) + 1
                if looks >= rule.looks:
                    fired.append(_fired(rule, of, value, looks))
        return fired


def _is_crossed(rule: AlertRule, value: float) -> bool:
    return value > rule.above if rule.above is not None else rule.below is not None and value < rule.below


def _fired(rule: AlertRule, of: str, value: float, looks: int) -> FiredAlert:
    side = "above" if rule.above is not None else "below"
    threshold = float(rule.above if rule.above is not None else rule.below or 0.0)
    times = f" for {looks} looks" if looks > 1 else ""
    text = f"{rule.title}: {of}: {rule.metric} {value:.4g} is {side} {threshold:.4g}{times}"
    return {
        "name": rule.title,
        "metric": rule.metric,
        "of": of,
        "value": value,
        "threshold": threshold,
        "side": side,
        "looks": looks,
        "text": text,
    }
