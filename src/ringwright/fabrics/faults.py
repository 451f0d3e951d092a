"""Faults as lines of text: what breaks, how, and when.

    link node3/nic2 flap 100ms every 2s             # down for 100 ms in every 2 s, from a seeded moment on
    link node0/gpu0>node0/gpu1 rate 50% from 1ms to 3ms     # half as fast, in one direction, for a while
    nic node3/nic2 dead at 5ms                      # all links at that node, for good
    rank 7 slow 2x                                  # adds and computes at half speed
    switch leaf0 dead from 1s to 2s                 # all links at that switch, for a while
    link leaf0--spine1 loss 0.1%                    # frames lost, in both directions
    link * loss 0.01%                               # frames lost on every link
    link node*/nic0 latency +5us at 1s for 500ms    # 5 us longer, for half a second, on links of a pattern
    link leaf0>spine1 ber 1e-3                      # a share of wrong bits; correction mends what it can, packets are lost
    nic node0/nic0 optics degrade for 20ms          # bit errors rise, then their lanes are shut: half of the rate is left
    switch leaf0 buffer 64KiB                       # that much room in front of each of its links
    link random:3 dead at 10ms                      # three cables by lot, seeded
    ecmp unlucky                                    # all flows between leaves hash to one route of several equal ones
    congestion from all-to-all 64MiB on 0-7         # another job on these ranks repeats it, as long as there is something to slow

Targets: ``link`` with ``a>b`` (one direction), ``a--b`` (both), one node (all links at it) or a pattern; ``nic`` and
``switch`` with a node or pattern of that kind; ``port``: a NIC, or a rank where there are none; ``rank`` with a number, name or
pattern; ``random:K`` of any of them. Effects: ``dead``, ``rate P%``, ``loss P%``, ``ber E``, ``latency T`` or ``+T``, ``buffer
SIZE``, ``optics degrade``, ``slow Fx`` (ranks), ``flap T every T``. Losses, bit errors and buffers act on packets: an answer that
follows no packets says so. ``ecmp unlucky`` is the worst draw of a hash, for good; ``congestion from COLLECTIVE SIZE [on RANKS]
[by ALGORITHM]`` is traffic of another job, which ``simulate`` alone runs (as ``--beside``). Times: ``at T``
or ``from T`` (else from the start), then ``to T``, ``until T`` or ``for T`` (else to the end). A rank that is ``dead`` loses
its links. What overlaps adds up: rates and speeds multiply, losses combine as independent chances, latencies add.

The lab (``ringwright_lab.network``) reads the same lines and a few that simulations have no model for: ``jitter T``,
``reorder P%`` and ``ecn P%`` on links, ``rank 3 kill at 4s``, ``rank 3 stop at 2s for 1s``; ``apply`` refuses those.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringwright.fabrics._congestion import WORD
from ringwright.fabrics._fault_lines import LAB, OPTICS, FaultEffect, effects
from ringwright.fabrics._hashing import ECMP, unlucky
from ringwright.ground.errors import InputError, UsageError
from ringwright.ground.units import parse_time
from ringwright.model.topology import FAULT_FIELDS, Fault, Topology

SCHEMA = "ringwright.faults/1"
_WORDS = re.compile(r"^    (\w+ .*?) +# (.+)$", re.MULTILINE)
HEALTHY = {"rate_factor": 1.0, "compute_factor": 1.0}
MOST_ROWS = 5_000_000
LANES_LEFT = OPTICS[-1][2]  # share of a link's rate behind the last step of `optics degrade`
LAB_FIELDS = ("jitter_s", "reorder", "ecn", "killed", "stopped")  # beyond the simulation's model


def in_words() -> list[tuple[str, str, str]]:
    """Return the lines above: what is hit and how (``link flap``), the line, what it means."""
    told = []
    for line, meaning in _WORDS.findall(__doc__ or ""):
        words = line.split()
        told.append((f"{words[0]} {words[1 if words[0] in (ECMP, WORD) else 2]}", line, meaning))
    return told


def apply(topology: Topology, lines: Iterable[str], *, horizon_s: float = 1.0, seed: int = 0) -> Topology:
    """Return the machine with these faults; ``topology.faults`` is sorted by time, kind, target and field.

    ``horizon_s``: flapping is laid out for so long, from its first outage on. ``seed`` draws what the lines leave open: when
    flapping starts, and which ``random`` targets. ``link * ...`` without a time changes the machine's own arrays instead of
    adding a row for each link. Raises UsageError where a line says nothing that can be understood; it names near names.
    """
    lines = list(lines)
    for text in (line.partition("#")[0].strip() for line in lines):
        if text.split()[:1] == [ECMP]:
            topology = unlucky(topology, text)
    # A line that is done with stays as an empty one: the lottery of the others goes by their number.
    rest = ["" if line.split()[:1] == [ECMP] else line for line in lines]
    listed = effects(topology, rest, horizon_s=horizon_s, seed=seed)
    beyond = next((each for each in listed if each.field in LAB_FIELDS), None)
    if beyond is not None:
        raise UsageError("this is outside the simulation's model", where=f"fault '{beyond.text}'", remedy=LAB)
    always = [each for each in listed if each.everywhere and not each.start_s and math.isinf(each.end_s)]
    changed = _everywhere(topology, always)
    rows = timetable(changed, [each for each in listed if each not in always])
    said = (line for text in lines if (line := text.partition("#")[0].strip()))
    return dataclasses.replace(
        changed,
        faults=tuple(sorted((*changed.faults, *rows), key=_order)),
        fault_lines=(*topology.fault_lines, *said),
        fault_seed=seed,
    )


def _everywhere(topology: Topology, always: Iterable[FaultEffect]) -> Topology:
    import numpy as np

    changed = topology
    for each in always:
        if each.field == "rate_factor":
            changed = dataclasses.replace(changed, rate=changed.rate * each.value)
        elif each.field in ("ber", "buffer_bytes"):
            rows_of_all = [Fault(0.0, "link", link, each.field, each.value) for link in each.targets]
            changed = dataclasses.replace(changed, faults=(*changed.faults, *rows_of_all))
        elif each.field == "loss":
            before = np.zeros(topology.n_links) if changed.loss is None else changed.loss
            changed = dataclasses.replace(changed, loss=1.0 - (1.0 - before) * (1.0 - each.value))
        else:
            latency_s = changed.latency_s * (each.field != "latency_s") + each.value
            changed = dataclasses.replace(changed, latency_s=latency_s)
    return changed


def rows(topology: Topology, lines: Iterable[str], *, horizon_s: float = 1.0, seed: int = 0) -> list[Fault]:
    """Return all that the lines say as rows, what only the lab can do (``LAB_FIELDS``) too; the machine stays as it is."""
    return timetable(topology, effects(topology, lines, horizon_s=horizon_s, seed=seed))


def _order(fault: Fault) -> tuple[float, str, int, str]:
    return fault.time_s, fault.kind, fault.target, fault.field


def healthy_value(topology: Topology, target: int, field: str) -> float:
    """Return what a field of a link or a rank is without faults."""
    if field == "latency_s":
        return float(topology.latency_s[target])
    if field == "loss":
        return 0.0 if topology.loss is None else float(topology.loss[target])
    return 0.0 if field in (*LAB_FIELDS, "ber", "buffer_bytes") else 1.0


def timetable(topology: Topology, effects: Sequence[FaultEffect]) -> list[Fault]:
    """Return a row for each moment at which a field of a target changes, what overlaps combined."""
    at: dict[tuple[str, int, str], list[FaultEffect]] = {}
    for effect in effects:
        field = "latency_s" if effect.field == "added_latency_s" else effect.field
        for target in effect.targets:
            at.setdefault((effect.kind, target, field), []).append(effect)
        if sum(map(len, at.values())) > MOST_ROWS:
            raise UsageError(f"more than {MOST_ROWS:,} rows of faults", remedy="a shorter horizon, or fewer links")
    rows: list[Fault] = []
    for (kind, target, field), acting in at.items():
        rows += _sweep(kind, target, field, acting, healthy_value(topology, target, field))
    return sorted(rows, key=_order)


def _sweep(kind: str, target: int, field: str, acting: Sequence[FaultEffect], healthy: float) -> list[Fault]:
    """Walk along the moments at which an effect begins or ends."""
    moments: dict[float, list[tuple[int, bool]]] = {}
    for number, effect in enumerate(acting):
        moments.setdefault(effect.start_s, []).append((number, True))
        if effect.end_s < math.inf:
            moments.setdefault(effect.end_s, []).append((number, False))
    rows, active, value = [], set[int](), healthy
    for time_s in sorted(moments):
        active |= {number for number, begins in moments[time_s] if begins}
        active -= {number for number, begins in moments[time_s] if not begins}
        now = _combined(field, [acting[number] for number in sorted(active)], healthy)
        if now != value:
            rows.append(Fault(time_s, kind, target, field, now))
            value = now
    return rows


def _combined(field: str, active: Sequence[FaultEffect], healthy: float) -> float:
    if field == "buffer_bytes":
        return min((effect.value for effect in active), default=healthy)
    if field == "ber":
        return min(1.0, sum(effect.value for effect in active))
    if field in ("loss", "reorder", "ecn"):
        return 1.0 - (1.0 - healthy) * math.prod(1.0 - effect.value for effect in active) if active else healthy
    if field == "latency_s":
        fixed = [effect.value for effect in active if effect.field == "latency_s"]
        return (fixed[-1] if fixed else healthy) + sum(each.value for each in active if each.field != "latency_s")
    if field in LAB_FIELDS:
        return sum(effect.value for effect in active)
    return math.prod(effect.value for effect in active)


def describe(topology: Topology, faults: Iterable[Fault]) -> list[str]:
    """Return lines that ``apply`` turns into these rows again, one per outage."""
    at: dict[tuple[str, int, str], list[Fault]] = {}
    for fault in sorted(faults, key=_order):
        at.setdefault((fault.kind, fault.target, fault.field), []).append(fault)
    described: list[tuple[float, str]] = []
    for (kind, target, field), rows in at.items():
        healthy = healthy_value(topology, target, field)
        for row, after in zip(rows, [*rows[1:], None], strict=True):
            if row.value != healthy:
                end = f" to {_time(after.time_s)}" if after else ""
                how = _EFFECTS[field](row.value, healthy)
                begin = f" from {_time(row.time_s)}" if row.time_s or end else ""
                described.append((row.time_s, f"{kind} {_name(topology, kind, target)} {how}{begin}{end}"))
    return [line for _, line in sorted(described)]


def describe_row(topology: Topology, row: Fault) -> str:
    """Return one change in words: ``link rank3>switch rate 20%``, ``rank rank1 slow 2x``."""
    return f"{row.kind} {_name(topology, row.kind, row.target)} " + _EFFECTS[row.field](
        row.value, healthy_value(topology, row.target, row.field)
    )


_EFFECTS: dict[str, Callable[[float, float], str]] = {
    "rate_factor": lambda value, _: f"rate {value * 100:.15g}%" if value else "dead",
    "loss": lambda value, healthy: f"loss {(1 - (1 - value) / (1 - healthy)) * 100:.15g}%",
    "ber": lambda value, _: f"ber {value:.15g}",
    "buffer_bytes": lambda value, _: f"buffer {int(value)}",
    "latency_s": lambda value, _: f"latency {_time(value)}",
    "compute_factor": lambda value, _: f"slow {1 / value:.15g}x",
    "jitter_s": lambda value, _: f"jitter {_time(value)}",
    "reorder": lambda value, _: f"reorder {value * 100:.15g}%",
    "ecn": lambda value, _: f"ecn {value * 100:.15g}%",
    "killed": lambda value, _: "kill" if value else "stays dead",
    "stopped": lambda value, _: "stop" if value else "goes on",
}


def _name(topology: Topology, kind: str, target: int) -> str:
    if kind == "rank":
        return topology.label(target)
    return f"{topology.label(int(topology.src[target]))}>{topology.label(int(topology.dst[target]))}"


def _time(time_s: float) -> str:
    """Return the shortest text that reads back as the same time."""
    texts = [f"{time_s * scale:.12g}{unit}" for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))]
    exact = [text for text in texts if parse_time(text) == time_s]
    return min(exact, key=len) if exact else f"{time_s!r}s"


def dumps(topology: Topology, faults: Iterable[Fault]) -> str:
    """Return the table as JSON: time_s, kind, number and name of the target, field, value."""
    rows = [
        {**dataclasses.asdict(fault), "name": _name(topology, fault.kind, fault.target)}
        for fault in sorted(faults, key=_order)
    ]
    return json.dumps({"schema": SCHEMA, "machine": topology.name, "faults": rows}, indent=1)


def loads(topology: Topology, text: str) -> tuple[Fault, ...]:
    """Return the rows of a table; raise InputError where it is none, or belongs to another machine."""
    try:
        table = json.loads(text)
        rows = table["faults"]
        if table["schema"] != SCHEMA or not isinstance(rows, list):
            raise KeyError(SCHEMA)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError("this is no table of faults", where=str(error)[:200], remedy=f"a file of {SCHEMA}") from error
    return tuple(sorted((_row(topology, row, number) for number, row in enumerate(rows)), key=_order))


def _row(topology: Topology, row: Any, number: int) -> Fault:
    where = f"row {number}"
    fields = ("time_s", "kind", "target", "field", "value", "name")
    if not isinstance(row, dict) or set(row) < set(fields):
        raise InputError("a row of faults is not whole", where=where, remedy=f"it has {', '.join(fields)}")
    numbers = [row["time_s"], row["value"]]
    if not all(isinstance(each, int | float) and 0 <= each < math.inf for each in numbers):
        raise InputError("a time or value is no number of 0 or more", where=where)
    kind, target, field = row["kind"], row["target"], row["field"]
    most = {"link": topology.n_links, "rank": topology.n_ranks}.get(kind if isinstance(kind, str) else "", 0)
    if not isinstance(target, int) or not 0 <= target < most or field not in FAULT_FIELDS:
        raise InputError("a row names no link or rank of this machine", where=where)
    if row["name"] != _name(topology, kind, target):
        raise InputError(
            f"the table belongs to another machine: {topology.name} has another {kind} {target}", where=where
        )
    return Fault(float(row["time_s"]), kind, target, field, float(row["value"]))
