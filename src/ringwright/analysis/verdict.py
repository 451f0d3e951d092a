"""Who is to blame, by the first error and by the watchdogs; or nothing, or a plain "cannot tell".

First error wins: a completion with status 5 (flushed) is the shadow of an earlier one. Status 12 and 13 (retries exceeded)
accuse the peer or the path to it. Hangs are judged by what watchdogs report (``analysis.watchdogs``).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from ringwright.analysis.document import Culprit, Row
from ringwright.analysis.failures import cause_of, first_of, is_failure
from ringwright.analysis.hangs.hang_mismatch import say_ranks
from ringwright.analysis.hangs.ras import of_ras
from ringwright.analysis.hangs.watchdogs import accuse, watchdog_reports

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

_HANGING = re.compile(r"may be hanging.{0,80}? around rank (\d{1,7})")
FLUSHED = 5
RETRY_STATUS = (12, 13)
NEAR_LINES = 20
SUSPECT, WARNED = 0.5, 0.3  # what one end, or the first error, says; a warning that nothing follows
_HARMLESS_EVENTS = (
    "port active",
    "gid table change",
    "client reregistration",
    "lid change",
    "pkey change",
    "sm change",
)


def errors(trace: Trace) -> list[Row]:
    """Return the error events in order of time where they carry one, else of the input; ``first`` marks the root."""
    import polars as pl

    columns = ("op", "rank", "host", "device", "text", "file", "line", "code", "task", "start_s")
    table = trace.scan("events").filter(pl.col("kind") == "error").select(columns).collect().to_dicts()
    timed = all(row["start_s"] is not None for row in table)
    if timed:
        table.sort(key=lambda row: row["start_s"])
    root = next((row for row in table if _is_root(row)), None)
    for row in table:
        row["first"] = row is root
        row["data"] = json.loads(row.pop("task") or "{}")
    return table


def _is_root(row: Row) -> bool:
    if row["op"] == "completion":
        return bool(row["code"] != FLUSHED)
    if row["op"] == "async":
        return not any(word in row["text"].lower() for word in _HARMLESS_EVENTS)
    return False


def verdict(
    errors: list[Row],
    ras: dict[str, Any] | None,
    world: int | None,
    host_of: dict[int, str],
    *,
    went_on: bool = True,
) -> Culprit | None:
    """Return the strongest verdict of the errors, or None for a healthy job.

    ``went_on``: whether calls were recorded; where none was, a warning that says that something failed is a suspect.
    """
    rules = (
        _network(errors),
        of_ras(ras, world),
        _watchdogs(errors, world, host_of),
        _said_to_hang(errors),
        _fatal(errors),
        _raised([row for row in errors if not row["data"].get("cut")], went_on=went_on),
        _killed(errors),
        _ended(errors),
        _raised(errors, went_on=went_on),  # tracebacks too whose end is cut off: a launcher's own may be among them
        None if went_on else _warned(errors),
    )
    return next((rule for rule in rules if rule is not None), None)


_SAYS = {
    "port-error": "a port failed on {who}",
    "nic-error": "a NIC reported an error on {who}",
    "peer-unreachable": "{who} is not reached",
    "network-error": "the first network error is that of {who}",
    "hang": "the others wait for {who}",
    "hang-mismatch": "{who} asked for something else than the others",
    "killed": "{who} was killed",
}


def _verdict(
    kind: str, ranks: list[int], hosts: list[str], confidence: float, evidence: list[str], words: str = ""
) -> Culprit:
    """Return a verdict; its conclusion, with the ``words`` of the error itself, comes before what it rests on."""
    who = say_ranks(ranks) if ranks else ", ".join(hosts[:4])
    unsure = [item for item in evidence if item.startswith("cannot tell")]
    first = [_SAYS[kind].format(who=who) + (f": {words}" if words else "")] if who else unsure or ["cannot tell who"]
    rest = [item for item in evidence if item not in first]
    return {"kind": kind, "ranks": ranks, "hosts": hosts, "confidence": confidence, "evidence": [*first, *rest][:12]}


def _location(row: Row) -> str:
    return f"{row['file']}:{row['line']}: {row['text'][:160]}"


def _network(errors: list[Row]) -> Culprit | None:
    roots = [row for row in errors if _is_root(row)]
    if not roots:
        return None
    first = roots[0]
    if first["op"] == "async":
        same = [row for row in roots if row["op"] == "async"]
        hosts = sorted({row["host"] for row in same if row["host"]})
        ranks = sorted({row["rank"] for row in same if row["rank"] is not None})
        kind = "port-error" if "port" in first["text"].lower() else "nic-error"
        later = [row for row in roots if row["op"] == "completion"]
        return _verdict(kind, ranks, hosts, 0.95 if later else 0.9, [_location(row) for row in (*same[:8], *later[:3])])
    peers = Counter(_peer_host(row["data"].get("peer")) for row in roots if row["op"] == "completion")
    peers.pop("", None)
    evidence = [_location(row) for row in roots[:8]]
    if first["code"] in RETRY_STATUS and peers:
        return _unreached(roots, peers, evidence)
    rank = [first["rank"]] if first["rank"] is not None else []
    return _verdict("network-error", rank, [first["host"]] if first["host"] else [], 0.7, evidence)


def _unreached(roots: list[Row], peers: Counter[str], evidence: list[str]) -> Culprit:
    """Accuse the peer that most retries name: one that tells of it cannot say which end it is, or the path between them."""
    peer, votes = peers.most_common(1)[0]
    tellers = {row["host"] for row in roots if _peer_host(row["data"].get("peer")) == peer}
    evidence.append(f"{votes} of {sum(peers.values())} first errors name peer {peer}")
    if len(tellers) < 2:
        teller = next(iter(tellers)) or "the one that tells of it"
        evidence.append(f"only {teller} tells of it: either end may be dead, or the path between them")
        words = f"either end may be dead, or the path from {teller} to it"
        return _verdict("peer-unreachable", [], [peer], SUSPECT, evidence, words=words)
    alone = votes / sum(peers.values())
    words = f"{len(tellers)} hosts say so: it, or the path to it, is dead"
    return _verdict("peer-unreachable", [], [peer], round(SUSPECT + 0.4 * alone, 2), evidence, words=words)


def _peer_host(peer: str | None) -> str:
    return (peer or "").partition("<")[0]


def _watchdogs(errors: list[Row], world: int | None, host_of: dict[int, str]) -> Culprit | None:
    hung = watchdog_reports(errors, world)
    if hung is None:
        return None
    accused = accuse(hung)
    places = [_location(row) for row in hung.rows]
    hosts = sorted({host for rank in accused.ranks if (host := host_of.get(rank))})
    evidence = [*places[:8], *accused.why]
    if hung.silent:
        evidence.append(f"ranks that said nothing: {', '.join(map(str, hung.silent[:20]))}")
    return _verdict(accused.kind, list(accused.ranks), hosts, accused.confidence, evidence)


def _said_to_hang(errors: list[Row]) -> Culprit | None:
    """A library that says itself that the program may hang, and around which rank the calls disagree."""
    told = [row for row in errors if row["op"] == "warning" and _HANGING.search(row["text"] or "")]
    if not told:
        return None
    rank = int(_HANGING.search(told[0]["text"])[1])  # type: ignore[index]
    said = f"the library says that collectives mismatch around rank {rank}"
    return {"kind": "hang", "ranks": [rank], "hosts": [], "confidence": SUSPECT, "evidence": [said, _location(told[0])]}


def _fatal(errors: list[Row]) -> Culprit | None:
    """A warning followed by a chain of error codes ended the job on that process; the first such chain is the root."""
    chained = {(row["host"], row["file"]) for row in errors if row["op"] == "chain" and row["code"]}
    warned = [row for row in errors if row["op"] == "warning" and (row["host"], row["file"]) in chained]
    return _failed(warned, errors, SUSPECT)


def _warned(errors: list[Row]) -> Culprit | None:
    """A warning of a failure where nothing was recorded after it."""
    warned = [row for row in errors if row["op"] == "warning" and is_failure(row["text"] or "")]
    return _failed(warned, errors, WARNED)


def _failed(warned: list[Row], errors: list[Row], confidence: float) -> Culprit | None:
    """Return the cause that the first warning states, with what its words mean, or another that stands beside it."""
    first = first_of(warned)
    if first is None:
        return None
    words = str(first["text"] or "")[:160].rstrip(".")
    beside = [row for row in errors if row["op"] in ("warning", "provider") and _is_near(row, first)]
    beside = [row for row in beside if cause_of(row["text"] or "")]
    cause = cause_of(words) or next((cause_of(row["text"]) for row in beside), None)
    chain = next(
        (row["data"].get("at") for row in errors if row["op"] == "chain" and row["host"] == first["host"]), None
    )
    layer = f", in {str(chain).rpartition(':')[0].rpartition('/src/')[2]}" if chain else ""
    said = f"{words} ({_who(first)}{layer})" + (f": {cause.meaning}" if cause else "")
    ranks, hosts = ([first[name]] if first[name] is not None else [] for name in ("rank", "host"))
    lines = [_location(row) for row in (first, *(each for each in beside[:4] if each is not first))]
    told: Culprit = {
        "kind": "error",
        "ranks": ranks,
        "hosts": hosts,
        "confidence": confidence,
        "evidence": [said, *lines],
    }
    return {**told, "command": cause.command} if cause else told


def _is_near(row: Row, other: Row) -> bool:
    """Whether a line stands so near another that it may speak of the same failure."""
    return bool(row["file"] == other["file"] and abs((row["line"] or 0) - (other["line"] or 0)) <= NEAR_LINES)


def _raised(errors: list[Row], *, went_on: bool) -> Culprit | None:
    """An exception of a rank: what NCCL said last is its cause; one that no rank signs counts where nothing went on after it."""
    raised = [row for row in errors if row["op"] == "raised" and (row["rank"] is not None or not went_on)]
    first = first_of([row | {"text": _words(row)} for row in raised])
    if first is None:
        return None
    words, cause = first["text"][:200].rstrip("."), cause_of(first["text"])
    who = _who(first) if first["rank"] is not None else "a rank that is not named"
    said = f"{words} ({who})" + (f": {cause.meaning}" if cause else "")
    ranks = [first["rank"]] if first["rank"] is not None else []
    told: Culprit = {
        "kind": "error",
        "ranks": ranks,
        "hosts": [],
        "confidence": WARNED if first["data"].get("cut") else SUSPECT,
        "evidence": [said, *(_location(row) for row in raised[:4])],
    }
    return {**told, "command": cause.command} if cause else told


def _words(row: Row) -> str:
    """Return NCCL's own words where an exception passes them on, else those of the exception."""
    last = row["data"].get("last")
    return f"{last}, {str(row['text']).partition(': ')[2]}" if last else str(row["text"] or "")


def _ended(errors: list[Row]) -> Culprit | None:
    """What torchrun says of the ranks that failed: the one that it saw first, else all."""
    ended = [row for row in errors if row["op"] == "exit"]
    first = next((row for row in ended if row["data"].get("root")), ended[0] if ended else None)
    if first is None:
        return None
    code = first["code"]
    how = str(first["text"] or "") or (
        "an error" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
    )
    if first["data"].get("child"):
        return {"kind": "error", "ranks": [], "hosts": [], "confidence": WARNED, "evidence": [how, _location(first)]}
    is_first = bool(first["data"].get("root"))
    ranks = sorted({row["rank"] for row in ([first] if is_first else ended) if row["rank"] is not None})
    listed = say_ranks(ranks) if ranks else first["data"].get("who") or "a rank"
    said = f"{listed} ended{' first' * is_first}, by {how}, as its launcher saw it"
    hosts = [first["host"]] if first["host"] else []
    return {
        "kind": "error",
        "ranks": ranks,
        "hosts": hosts,
        "confidence": SUSPECT,
        "evidence": [said, _location(first)],
    }


def _who(row: Row) -> str:
    """Say which process wrote a line, as far as it is told."""
    if row["rank"] is not None:
        return f"rank {row['rank']}" + (f" on {row['host']}" if row["host"] else "")
    device = f"device {row['device']}" if row["device"] is not None else ""
    return " of ".join(each for each in (device, row["host"] or "") if each) or "a process that is not named"


def _killed(errors: list[Row]) -> Culprit | None:
    dead = [row for row in errors if row["op"] == "killed" and row["code"] != 15]
    if not dead:
        return None
    first = dead[0]
    return _verdict("killed", [first["rank"]], [first["host"]], 0.6, [_location(row) for row in dead[:8]])
