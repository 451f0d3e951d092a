"""The account of exposed communication: fusions expected and fired, and per group, operation, phase and layer the cause.

It goes on where ``overlap_audit`` ends. A pair that should have been one operation, while others were, is
*fusion-not-matched*. An operation that could have begun while computation went on, and stood behind another one of its
communicator, is *same-communicator*. What keeps communication and computation apart is named: a stream, a communicator, a
variable of the environment, a call of the host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ringwright.analysis.exposed import overlap_remedies, variables_seen
from ringwright.analysis.exposed.copied_collectives import copies_of
from ringwright.analysis.exposed.fusion_rows import PRODUCTS, Fusion, FusionRows, begin_end, fusion_rows
from ringwright.analysis.exposed.fusions import Fusions, fusions
from ringwright.analysis.exposed.overlap_audit import SHARE, Case
from ringwright.analysis.exposed.overlap_remedies import NOT_MATCHED, ONE_COMMUNICATOR, OverlapRemedy
from ringwright.analysis.library_of_calls import XLA, made_by

if TYPE_CHECKING:
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

BEHIND_US = 10.0  # from the end of one operation of a communicator to the start of the next that waited for it
WAITED_US = 20.0
MOST = 200  # rows that are told


@dataclass
class OverlapAccount:
    """Cases with their final reasons, all fusions, and sentences on what cannot be told."""

    cases: list[Case] = field(default_factory=list)
    fusions: Fusions = field(default_factory=Fusions)
    unseen: list[Case] = field(
        default_factory=list
    )  # operations without kernel or copies: nothing is known of their time
    ranks: dict[int | None, FusionRows] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    is_on: bool = False  # whether products were meant to be fused: some are, or fell back
    variables: list[variables_seen.Variable] = field(default_factory=list)
    library: str = ""  # that made the calls

    def switched(self, remedy: OverlapRemedy) -> OverlapRemedy:
        """Return a remedy without its switch where that is another world's: PyTorch's are none of XLA's."""
        return replace(remedy, switch="") if self.library == XLA else remedy


def account(trace: Trace, cases: list[Case]) -> OverlapAccount:
    """Return the account of a trace from its exposed operations and their first reasons."""
    ranks = fusion_rows(trace)
    known = trace.scan("communicators").select("communicator", "name").collect()
    names = {number: str(name or number).strip() for number, name in known.rows()}
    made = OverlapAccount(fusions=fusions(ranks, names), names=names, ranks={rows.rank: rows for rows in ranks})
    made.library = made_by(trace.meta)
    made.is_on = bool(made.fusions.fired & set(PRODUCTS)) or any(rows.fallen for rows in ranks)
    made.variables = variables_seen.variables(trace)
    queues = {rank: _queues(rows) for rank, rows in made.ranks.items()}
    missed: dict[tuple[str | None, int | None], Fusion] = {
        (one.file, one.event): one
        for one in made.fusions.all
        if one.event is not None and not one.fired and one.pattern in PRODUCTS
    }
    for case in cases:
        rows = made.ranks.get(case.evidence["rank"])
        if rows is None:
            made.cases.append(case)
        elif not rows.in_fused(case.row.get("enqueue_s")):  # barriers of a fused operation are part of it
            made.cases.append(_refined(case, rows, made, missed, queues[rows.rank]))
    for rows in ranks:
        made.unseen += _unseen(rows)
    return made


def _refined(
    case: Case,
    rows: FusionRows,
    made: OverlapAccount,
    missed: dict[tuple[str | None, int | None], Fusion],
    queues: _Queues,
) -> Case:
    fusion = missed.get((case.evidence["file"], case.evidence["event"]))
    if fusion is not None:
        gained = {} if fusion.looped_us is None else {"gain_us": min(fusion.looped_us, case.exposed_us)}
        case = replace(case, evidence=case.evidence | {"pair": fusion.pattern, **gained})
    if fusion is not None and case.reason == "dependency" and made.is_on:
        return _as(case, NOT_MATCHED, 0.8, fusion.fault)
    if case.reason in ("dependency", "cannot tell"):
        behind = queues.behind(case)
        if behind is not None:
            first, waited, gain = behind
            text = f"ready {waited:,.0f} us before, it stood behind {first} of its communicator"
            return _as(case, ONE_COMMUNICATOR, 0.7, text, gain_us=gain)
    said = variables_seen.blamed(made.variables, case.reason)
    if said is not None:
        return _as(case, case.reason, 0.9, f"{case.evidence['text']}; {said.name}={said.value}")
    return case


def _as(case: Case, reason: str, confidence: float, text: str, **more: Any) -> Case:
    return replace(case, reason=reason, confidence=confidence, evidence=case.evidence | {"text": text, **more})


@dataclass
class _Queues:
    """Which operation of a rank stood behind which on a stream."""

    rows: FusionRows
    before: dict[int, Row]  # by the event of an operation, the one before it on its stream and communicator

    def behind(self, case: Case) -> tuple[str, float, float] | None:
        """Return the operation that was waited for, how long, and how much sooner this one could have been over, at most."""
        row = case.row
        first = self.before.get(row["line"])
        if first is None or row["enqueue_s"] is None or first["op"] == row["op"]:
            return None  # alike ones in a row: the links are busy, and another communicator would share them
        begin, _ = begin_end(row)
        if begin - begin_end(first)[1] > BEHIND_US:
            return None
        ready = row["enqueue_s"] * 1e6
        last = self.rows.launched_last(ready)  # it waits for what was launched before it, at most
        if last is not None:
            ready = max(ready, float(self.rows.compute["end"][last]))
        waited = begin - ready
        if waited < max(WAITED_US, SHARE * case.exposed_us):
            return None
        return first["op"], waited, min(waited, case.exposed_us)


def _queues(rows: FusionRows) -> _Queues:
    last: dict[tuple[Any, Any], Row] = {}
    before = {}
    for row in rows.talk:
        key = (row["stream"], row["communicator"])
        if key in last and row["stream"] is not None and row["line"] is not None:
            before[row["line"]] = last[key]
        last[key] = row
    return _Queues(rows, before)


def _unseen(rows: FusionRows) -> list[Case]:
    """Return operations that were asked for, and of which neither a kernel nor copies are in the trace."""
    copied = copies_of(rows)
    made = []
    for number, row in enumerate(rows.asked):
        if row["start_s"] is None and number not in copied and not rows.in_fused(row["enqueue_s"]):
            evidence = {"rank": rows.rank, "file": row["file"], "event": row["line"], "op": row["op"]}
            text = "its kernel is not in the trace, or has a name that no catalogue knows"
            made.append(Case("cannot tell", 0.0, 0.0, evidence | {"text": text}, row))
    return made


def account_rows(made: OverlapAccount) -> Row:
    """Return ``fusions``, ``exposed``, ``apart``, ``environment`` and ``unknown``, the costliest first."""
    return {
        "fusions": _fusions(made),
        "exposed": _exposed(made),
        "apart": _apart(made),
        "environment": [{"name": one.name, "value": one.value, "note": one.note} for one in made.variables],
        "unknown": _unknown(made),
    }


def patterns(fusions: Sequence[Row]) -> list[Row]:
    """Return one row per pattern of fusions: expected, fired, groups and layers that lack it, why, remedy; most missed first."""
    summed: dict[str, Row] = {}
    for row in fusions:
        new = {**row, "expected": 0, "fired": 0, "missed": 0, "groups": [], "layers": [], "gain_us": None}
        mine = summed.setdefault(row["pattern"], new)
        for name in ("expected", "fired", "missed"):
            mine[name] += row[name]
        if row["missed"]:
            mine["groups"] += [row["group"]] if row["group"] and row["group"] not in mine["groups"] else []
            mine["layers"].append(row["layer"])
            mine["why"] = mine["why"] or row["why"]
        if row["gain_us"]:
            low, high = mine["gain_us"] or (0.0, 0.0)
            mine["gain_us"] = [low + row["gain_us"][0], high + row["gain_us"][1]]
    return sorted(summed.values(), key=lambda row: (-row["missed"], row["pattern"]))


def _fusions(made: OverlapAccount) -> list[Row]:
    grouped: dict[tuple[str, str, int | None], list[Fusion]] = defaultdict(list)
    for one in made.fusions.all:
        grouped[one.pattern, one.layer, one.communicator if one.pattern not in PRODUCTS else None].append(one)
    rows = [_fusion(made, *key, each) for key, each in grouped.items()]
    return sorted(rows, key=lambda row: (-row["missed"], row["pattern"], row["layer"]))[:MOST]


def _fusion(made: OverlapAccount, pattern: str, layer: str, group: int | None, each: list[Fusion]) -> Row:
    missed = [one for one in each if not one.fired]
    known = sorted({made.names[one.communicator] for one in each if one.communicator in made.names})
    largest = max((one.size_bytes or 0 for one in missed), default=0)
    remedy = made.switched(overlap_remedies.of_fusion(pattern, largest or None))
    gains = [one.looped_us for one in missed if one.looped_us is not None]
    return {
        "pattern": pattern,
        "layer": layer,
        "group": ", ".join(known),
        "expected": len(each),
        "fired": len(each) - len(missed),
        "missed": len(missed),
        "comm_us": round(sum(one.comm_us for one in missed), 3),
        "gain_us": [0.0, round(sum(gains), 3)] if gains else None,
        "why": missed[0].fault if missed else "",
        "evidence": [{"rank": one.rank, "file": one.file, "event": one.event} for one in missed[:5]],
        "rewrite": remedy.rewrite,
        "system": remedy.system,
        "memory": remedy.memory,
        "switch": remedy.switch,
    }


def _exposed(made: OverlapAccount) -> list[Row]:
    grouped: dict[tuple[int | None, str, str, str, str, str], list[Case]] = defaultdict(list)
    for case in made.cases:
        row, rows = case.row, made.ranks.get(case.evidence["rank"])
        phase = rows.phase(row) if rows is not None else str(row.get("phase") or "")
        what = (case.evidence["op"], phase, row.get("layer") or "", case.reason, case.evidence.get("pair", ""))
        grouped[(row.get("communicator"), *what)].append(case)
    told: list[Row] = []
    for (group, op, phase, layer, cause, pair), each in grouped.items():
        role = next((rows.roles.get(group) for rows in made.ranks.values() if group is not None), None)
        largest = max((case.row.get("size_bytes") or 0 for case in each), default=0)
        remedy = made.switched(overlap_remedies.remedy_of(cause, op, role, phase, pair, largest or None))
        gains = [case.evidence["gain_us"] for case in each if "gain_us" in case.evidence]
        told.append(
            {
                "group": made.names.get(group, "") if group is not None else "",
                "op": op,
                "phase": phase,
                "layer": layer,
                "cause": cause,
                "exposed_us": round(sum(case.exposed_us for case in each), 3),
                "count": len(each),
                "gain_us": [0.0, round(sum(gains), 3)] if gains else None,
                "rewrite": remedy.rewrite,
                "system": remedy.system,
                "memory": remedy.memory,
                "switch": remedy.switch,
            }
        )
    return sorted(told, key=lambda row: (-row["exposed_us"], row["group"], row["op"], row["layer"]))[:MOST]


def _apart(made: OverlapAccount) -> list[Row]:
    """Return what keeps communication and computation apart: a stream, a communicator, a variable, a call."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(list)
    for case in made.cases:
        what = _apart_by(made, case)
        if what:
            sums[case.reason, what].append(case.exposed_us)
    rows: list[Row] = [
        {"cause": cause, "what": what, "exposed_us": round(sum(each), 3), "count": len(each)}
        for (cause, what), each in sums.items()
    ]
    return sorted(rows, key=lambda row: (-float(row["exposed_us"]), str(row["cause"])))


def _apart_by(made: OverlapAccount, case: Case) -> str:
    if case.reason == "same-stream":
        return f"stream {case.evidence['stream']}"
    if case.reason == ONE_COMMUNICATOR:
        return f"communicator {made.names.get(case.row['communicator'], case.row['communicator'])}"
    said = variables_seen.blamed(made.variables, case.reason)
    if said is not None:
        return f"{said.name}={said.value}"
    if case.reason == "connections":
        return "one hardware queue, as CUDA_DEVICE_MAX_CONNECTIONS=1 makes it"
    return "a call of the host that waits" if case.reason == "strict-order" else ""


def _unknown(made: OverlapAccount) -> list[str]:
    told = [f"cannot tell: {one}" for one in made.fusions.unsure]
    if made.unseen:
        kinds = sorted({case.evidence["op"] for case in made.unseen})
        first = made.unseen[0].evidence
        told.append(
            f"cannot tell: {len(made.unseen)} operations ({', '.join(kinds)}) have no kernel in the trace: it ran after the "
            f"end, or no catalogue knows its name (RINGWRIGHT_KERNELS); the first: event {first['event']}"
        )
    pieces = sum(row["kernel_class"] == "userbuffers" for rows in made.ranks.values() for row in rows.talk)
    if pieces:
        told.append(f"cannot tell: {pieces:,} kernels of user buffers: which products they belong to is not recorded")
    if made.cases and not any(case.row.get("layer") for case in made.cases):
        told.append(
            'cannot tell: no launch names its layer; record with_stack=True, or label layers: record_function("layers.3")'
        )
    if not made.variables and made.cases:
        told.append(
            "cannot tell: the environment is not in the trace; the page on profiler traces says how to put it there"
        )
    return told
