"""What deserves attention, each with evidence and the next command to type; the most severe first."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ringwright.analysis import remedies
from ringwright.analysis.document import JobFinding, Judged, Origin, Row
from ringwright.bounds.laws import LAWS, of_ledger
from ringwright.ground.units import format_count

SOCKETS = "network is Socket"
ALSO = "others use"  # another network, where not all processes talk over sockets
INITIALISED = "initialised:"
APART = "processes ran the benchmark apart"
_TURNED_OFF = ("env NCCL_IB_DISABLE", "env NCCL_NET")  # what makes NCCL take sockets
_UNKNOWN_LAYOUT = "unknown layout"
_WITHOUT_PROCESS = "without the process"
_ORDER = {"error": 0, "warning": 1, "info": 2}


def findings(seen: Judged, claims: list[Row]) -> list[JobFinding]:
    """Return what deserves attention in the facts, what they broke and what was lost."""
    all_findings: list[JobFinding] = []
    for rule in (
        _verdict,
        _missing_ranks,
        _no_collectives,
        _losses,
        _refused,
        _apart,
        _laws,
        _transport,
        _initialised,
        _in_network,
        _small,
        _graphs,
        _roles,
    ):
        all_findings.extend(rule(seen, claims))
    return sorted((_typed(item, seen) for item in all_findings), key=lambda item: _ORDER[item["severity"]])


def _typed(item: JobFinding, summary: Judged) -> JobFinding:
    """Return a finding without its command where that would name an input that nobody can type."""
    unknown = summary["inputs"] and not remedies.given(summary) and _input(summary) in item["command"]
    return {**item, "command": ""} if unknown else item


def _finding(severity: str, title: str, detail: str, command: str, evidence: list[str] | None = None) -> JobFinding:
    return {"severity": severity, "title": title, "detail": detail, "evidence": evidence or [], "command": command}


def _input(summary: Judged) -> str:
    return remedies.inputs(summary["inputs"])


def _verdict(summary: Judged, claims: list[Any]) -> list[JobFinding]:
    verdict = summary["verdict"]
    if verdict is None:
        return []
    who = ", ".join(map(str, verdict["ranks"][:16])) or ", ".join(verdict["hosts"][:4])
    title = f"{verdict['kind']}: {verdict['evidence'][0] if verdict['evidence'] else who or 'culprit unknown'}"
    told = verdict.get("command") or ""
    detail = f"confidence {verdict['confidence']:.2f}"
    return [_finding("error", title, detail, told or remedies.report(summary), verdict["evidence"])]


def is_log(summary: Origin) -> bool:
    """Say whether the input is a log, to which a log's advice applies."""
    return summary["kind"] in ("", "nccl-log") or "nccl-log" in summary["kind"].split("+")


def _missing_ranks(summary: Judged, claims: list[Any]) -> list[JobFinding]:
    seen, expected = summary["ranks_seen"], summary["ranks_expected"]
    is_table = (
        not seen and not summary["operations"] and any(row["kind"] == "benchmark" for row in summary["bandwidth"])
    )
    is_told = not seen and summary["verdict"] is not None  # NCCL's RAS speaks of ranks that no line is from
    if expected is None or seen >= expected or is_table or is_told:  # a benchmark's table stands for all its ranks
        return []
    detail = f"{expected - seen} of {expected} ranks are not in the input; totals are those of the ranks seen"
    command = "ringwright summary 'nccl.*.log'" if is_log(summary) else f"ringwright summary {_folder(summary)}"
    return [_finding("warning", f"{seen} of {expected} ranks seen", detail, command)]


def _folder(summary: Judged) -> str:
    """Return the folder of the first input: the other ranks' recordings lie beside it, as a rule."""
    first = str(summary["inputs"][0]).partition("!")[0] if summary["inputs"] else "."
    return shlex.quote(str(Path(first).parent))


def _no_collectives(summary: Judged, claims: list[Any]) -> list[JobFinding]:
    if summary["operations"] or summary["bandwidth"] or summary["culprits"]:
        return []
    if not is_log(summary):
        detail = "no collective was recorded, so counts and bytes are unknown, not zero"
        return [_finding("warning", "no collectives", detail, f"ringwright doctor {_input(summary)}")]
    if any(_is_unread(row) for row in summary["ledger_detail"]):
        return []  # operations are there: what became of them is told by itself
    detail = "the log holds no collective lines (subsystem COLL is off by default), so counts and bytes are unknown, not zero"
    command = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,GRAPH,NET,TUNING NCCL_DEBUG_FILE=nccl.%h.%p.log"
    return [_finding("warning", "no collective lines", detail, command)]


def _losses(summary: Judged, claims: list[Any]) -> list[JobFinding]:
    losses = summary["losses"]
    if not losses:
        return []
    return [_finding("warning", "part of the input was not read", losses[0], f"ls -l {_input(summary)}", losses[:8])]


def _refused(summary: Judged, claims: list[Any]) -> list[JobFinding]:
    detail = [row for row in summary["ledger_detail"] if row["outcome"] == "refused"]
    unknown = [row for row in detail if _UNKNOWN_LAYOUT in (row["reason"] or "")]
    ledger = summary["ledger"]
    is_certain = any("cut short" not in row["reason"] for row in unknown)
    is_much = sum(row["lines"] for row in unknown) * 200 >= ledger["understood"]
    told: list[JobFinding] = []
    if unknown and (is_certain or is_much):
        why = "operations end early or are printed as no known release prints them; they are not counted"
        told.append(_unread(summary, unknown, "lines of unknown layout", why))
    lost = [row for row in detail if _WITHOUT_PROCESS in (row["reason"] or "")]
    if lost and sum(row["lines"] for row in lost) * 200 >= ledger["understood"]:
        why = "lines of NCCL's do not begin with host:pid:tid, so nobody can tell which process wrote them"
        told.append(_unread(summary, lost, "lines without their process", why))
    refused = ledger["refused"] - sum(row["lines"] or 0 for row in [*unknown, *lost, *_broken(detail)])
    if refused <= 0 or refused * 200 < ledger["understood"]:
        return told
    said = f"{refused} of {ledger['lines']} lines could not be used; one file per process avoids cut lines"
    command = "NCCL_DEBUG_FILE=nccl.%h.%p.log"
    return [*told, _finding("warning", "lines were lost to interleaving", said, command)]


def _is_unread(row: Row) -> bool:
    """Whether a row of the ledger stands for operations that were met and could not be used."""
    reason = row["reason"] or ""
    is_operation = _UNKNOWN_LAYOUT in reason or (_WITHOUT_PROCESS in reason and "opCount" in (row["example"] or ""))
    return row["outcome"] == "refused" and is_operation


def _broken(rows: list[Row]) -> list[Row]:
    """Return the rows of the ledger that a law refused."""
    return [row for row in rows if of_ledger([row]).counts]


def _unread(summary: Judged, rows: list[Row], title: str, why: str) -> JobFinding:
    """Say that lines of NCCL's could not be used, how many, why, and show the first of them."""
    lines = sum(row["lines"] for row in rows)
    evidence = [f"{row['file']}:{row['example_line']}: {row['example']}" for row in rows[:3]]
    command = f"ringwright summary {_input(summary)} --json"
    return _finding("warning", title, f"{lines:,} {why}", command, evidence)


def _laws(summary: Judged, claims: list[Any]) -> list[JobFinding]:
    """Say of each law what broke it: these figures are not used."""
    return [_law(summary, row) for row in summary["laws"] if row["law"] != "series"]


def _law(summary: Judged, row: Row) -> JobFinding:
    name = row["law"]
    became = {"records": "missing", "messages": "unmatched"}.get(name, "refused")
    detail = f"{row['example']}; the law: {LAWS[name].statement}"
    severity = {"ranks": "info", "messages": "info", "correct": "error"}.get(name, "warning")
    title = f"law {name}: {format_count(row['refused'])} {became}"
    return _finding(severity, title, detail, f"ringwright summary {_input(summary)} --json")


def _apart(summary: Judged, claims: list[Row]) -> list[JobFinding]:
    """Say that processes of a benchmark did not know of each other."""
    processes = [claim["value"] for claim in claims if claim["field"] == "processes"]
    if not processes:
        return []
    detail = (
        "each is its own rank 0 and joined only its own GPUs, so nothing between them was measured; nccl-tests joins processes "
        "where it was built with MPI (make MPI=1)"
    )
    title = f"{max(processes, key=int)} {APART}"
    return [_finding("warning", title, detail, f"ringwright report {_input(summary)} -o job.html")]


def _transport(summary: Judged, claims: list[Row]) -> list[JobFinding]:
    networks = [claim["value"] for claim in claims if claim["field"] == "network"]
    if "Socket" not in networks or summary["hosts"] < 2:
        return []
    detail = (
        "traffic between hosts goes over TCP sockets; an RDMA NIC, if there is one, is not used (a log with these settings "
        "says why: look for NET/IB : No device found)"
    )
    others = sorted({name for name in networks if name != "Socket"})
    why = [f"{ALSO} {', '.join(others)}"] if others else []
    why += [f"{claim['field'][4:]} is {claim['value']}" for claim in claims if claim["field"] in _TURNED_OFF]
    why += [claim["value"] for claim in claims if claim["field"] == "network not used"]
    return [_finding("warning", SOCKETS, detail, "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET", why)]


def _initialised(summary: Judged, claims: list[Row]) -> list[JobFinding]:
    """Say how long communicators took to begin, where NCCL times that and no call was read."""
    told = next((claim["value"] for claim in claims if claim["field"] == "initialisation"), "")
    if not told or summary["operations"]:
        return []
    seen, expected = summary["ranks_seen"], summary["ranks_expected"]
    who = f"{seen} of {expected} ranks" if expected and expected != seen else f"{seen} ranks"
    head, _, parts = told.partition(" (")
    detail = f"the longest: {parts.rstrip(')')} s" if parts else "the longest that NCCL timed"
    return [_finding("info", f"{INITIALISED} {who} in {head}", detail, f"ringwright summary {_input(summary)} --json")]


def _in_network(summary: Judged, claims: list[Row]) -> list[JobFinding]:
    """Say of which communicators some ranks or all fell back from CollNet."""
    said = summary["in_network"]
    if said is None:
        return []
    told = []
    for state in ("partly", "refused", "silent fallback"):
        mine = [each for each in said["communicators"] if each["state"] == state]
        if not mine:
            continue
        evidence = [f"{each['what']}: {each['first_at']}" for each in said["refused"]][:3]
        title = f"CollNet: {state} in {len(mine)} of {len(said['communicators'])} communicators"
        command = f"ringwright summary {_input(summary)} --json"
        told.append(_finding("error" if state == "partly" else "warning", title, mine[0]["why"], command, evidence))
    return told


def _small(summary: Judged, claims: list[Any]) -> list[JobFinding]:
    tiny = total = 0
    for operation in summary["operations"]:
        for line in operation["size_histogram"]:
            total += line["count"]
            tiny += line["count"] if line["size_bytes"] is not None and line["size_bytes"] <= 8192 else 0
    if total < 1000 or tiny * 2 < total:
        return []
    detail = f"{tiny:,} of {total:,} operations move 8 KiB or less: latency, not bandwidth, sets their time"
    sql = "select op, size_bytes, sum(multiplicity) n from events group by op, size_bytes order by n desc"
    command = f'ringwright query "{sql}" {_input(summary)}'
    return [_finding("info", "most requests are small", detail, command)]


def _graphs(summary: Judged, claims: list[Row]) -> list[JobFinding]:
    if not summary["operations"] or not is_log(summary):
        return []
    detail = "a CUDA graph prints its collectives when captured, not when replayed: counts are lower bounds if graphs are used"
    return [_finding("info", "counts are lower bounds", detail, f"ringwright report {_input(summary)} -o job.html")]


def _roles(summary: Judged, claims: list[Any]) -> list[JobFinding]:
    degrees = {name.upper(): degree for name, degree in summary["roles"].items() if degree and degree > 1}
    if not degrees:
        return []
    text = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
    command = f'ringwright query "select communicator, size, role, role_evidence from communicators" {_input(summary)}'
    return [
        _finding("info", f"parallelism {text}", "roles come from launch arguments, members and operations", command)
    ]
