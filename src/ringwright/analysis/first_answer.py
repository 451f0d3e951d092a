"""What is said first: one sentence that answers, the three figures behind it, and the command to type next.

The sentence rests on conclusions that the summary has reached elsewhere; nothing is judged anew here, and where they reach none
it says why nobody can tell.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from ringwright.analysis import remedies
from ringwright.analysis.answer_document import Figure, FirstAnswer, Kind
from ringwright.analysis.findings import ALSO, APART, INITIALISED, SOCKETS
from ringwright.analysis.first_calls import COLD
from ringwright.analysis.hangs.hang_mismatch import say_ranks
from ringwright.analysis.normal import LARGE_BYTES
from ringwright.analysis.slow.places import KINDS as PLACES
from ringwright.bounds.laws import told_by, wrong_results
from ringwright.ground.units import format_count, format_size, format_time

if TYPE_CHECKING:
    from ringwright.analysis.call_times import OperationTime
    from ringwright.analysis.document import Culprit, JobFinding, Judged, Row
    from ringwright.analysis.normal_document import NormalRow

SURE = 0.5  # below, a verdict is a perhaps
MUCH_EXPOSED = 0.1  # of the ranks' time, in communication that no compute hides
CANNOT_TELL = "cannot tell"  # who began it; that it hangs is sure then
FAILED = (  # an error ended it
    "error",
    "killed",
    "port-error",
    "nic-error",
    "peer-unreachable",
    "network-error",
    "ras-dead",
)
LOW, HIGH = 25.0, 75.0  # percentiles between which a system is like most


def first_answer(
    seen: Judged, findings: list[JobFinding], normal: list[NormalRow], unknown: list[str], times: list[OperationTime]
) -> FirstAnswer:
    """Return the answer to "is it slow, and why?" that a recording gives.

    Parameters
    ----------
    seen
        The summary without its conclusions.
    findings
        What deserves attention, the most severe first.
    normal, unknown
        What was measured beside other systems, and what cannot be.
    times
        How long the calls took, where they carry a time; empty: no call does.
    """
    if (verdict := seen["verdict"]) is not None:
        return _of_verdict(seen, verdict)
    if wrong := wrong_results(seen["laws"]):
        figures = [
            ("rows with wrong results", format_count(wrong["refused"])),
            ("other rows", str(len(seen["bandwidth"]))),
        ]
        return _answer("wrong", f"The results are wrong: {wrong['example']}", figures, _next(seen, findings))
    fallen = next((each for each in findings if each["title"] == SOCKETS), None)
    if fallen is not None and not _fastest_are_normal(normal):
        return _of_sockets(seen, fallen)
    if (telling := _of_table(seen, findings)) is not None:
        return telling
    if normal or _is_benchmark(seen):
        return _of_benchmark(seen, findings, normal, unknown)
    if seen["exposed_us"] is not None and seen["overlap"].get("span_us"):
        return _of_times(seen, findings)
    return _untold(seen, findings, times)


def _headline(verdict: Culprit) -> tuple[Kind, str]:
    """Return the kind of the answer, and its first sentence."""
    because = verdict["evidence"][0] if verdict["evidence"] else verdict["kind"]
    is_sure = verdict["confidence"] >= SURE
    if verdict["kind"].startswith("hang"):
        if because.startswith(CANNOT_TELL):
            return "hung", f"Hung; {because}"
        return "hung", f"{'Hung' if is_sure else 'Perhaps hung'}: {because}"
    if "died" in verdict["kind"] or verdict["kind"] in FAILED:
        return "failed", f"{'Failed' if is_sure else 'Perhaps failed'}: {because}"
    if because.startswith(CANNOT_TELL):
        told = verdict["evidence"][1:3] if because == f"{CANNOT_TELL} who" else []
        return "cannot-tell", "; ".join([f"{because[0].upper()}{because[1:]}", *told])
    return "slow", f"{'Slow' if is_sure else 'Perhaps slow'} because {because}"


def _of_verdict(seen: Judged, verdict: Culprit) -> FirstAnswer:
    kind, headline = _headline(verdict)
    caused = sum(row["caused_us"] for row in seen["waits"] if row["rank"] in verdict["ranks"])
    whom = say_ranks(verdict["ranks"]).partition(" ")[2] if verdict["ranks"] else "nobody can tell"
    figures = [("ranks to blame", whom)]
    if caused > 0 and not verdict["kind"].startswith("slow-"):  # a slow network makes nobody come late
        waited = sum(row["wait_us"] for row in seen["waits"])
        figures += [("waiting that it causes", _us(caused)), ("waiting of all ranks", _us(waited))]
    figures += [
        ("confidence", f"{verdict['confidence']:.2f}"),
        ("hosts", ", ".join(verdict["hosts"][:4]) or "not told"),
    ]
    command = verdict.get("command", "") or remedies.report(seen)
    if kind == "hung" and not verdict["ranks"] and any(row["kind"] == "watchdog" for row in seen["errors"]):
        command = remedies.FLIGHT_RECORDER
    answer = _answer(kind, headline, figures, command, verdict["evidence"][1:5])
    answer["ranks"] = verdict["ranks"]
    if part := _named_part(verdict):
        answer["place"] = part
    return answer


def _named_part(verdict: Culprit) -> str:
    """Return what of the named ranks is to blame."""
    if not verdict["ranks"] and not verdict["hosts"]:
        return ""
    kind = verdict["kind"].removeprefix("slow-").partition("-")[0]
    return kind if verdict["kind"].startswith("slow-") and kind in PLACES else "rank" if verdict["ranks"] else "host"


def _fastest_are_normal(normal: list[NormalRow]) -> bool:
    return bool(normal) and min(row["percentile"] for row in _largest(normal)) >= LOW


def _of_sockets(seen: Judged, fallen: JobFinding) -> FirstAnswer:
    """Several hosts that talk over plain sockets: what was measured, if anything, comes as figures."""
    hosts = seen["hosts"]
    why = fallen["evidence"]
    if why and why[0].startswith(ALSO):
        sentence = f"Slow network: some processes on {hosts} hosts use TCP sockets, {why[0]}"
    else:
        sentence = f"Slow network: NCCL moves data between {hosts} hosts over TCP sockets, not over RDMA"
        sentence += f"; {why[0]}" if why else ""
    rates = [(row["op"], _rate(row)) for row in _fastest(seen)]
    return _answer("slow", sentence, [("hosts", str(hosts)), *rates], fallen["command"], fallen["evidence"])


def _is_benchmark(seen: Judged) -> bool:
    return seen["exposed_us"] is None and any(row.get("busbw_gbs") is not None for row in seen["bandwidth"])


def _of_benchmark(seen: Judged, findings: list[JobFinding], normal: list[NormalRow], unknown: list[str]) -> FirstAnswer:
    if not normal:
        why = unknown[0] if unknown else "nothing is known of what other systems reach with it"
        figures = [(row["op"], _rate(row)) for row in _fastest(seen)]
        return _answer("cannot-tell", f"Cannot tell whether this is normal: {why}", figures, _next(seen, findings))
    row = min(_largest(normal), key=lambda row: row["percentile"])
    share = row["percentile"]
    what = f"{row['op']} of {format_size(row['size_bytes'])} reaches {row['busbw_gbs']:.3g} GB/s"
    beside = f"percentile {share:.0f} of such systems ({row['n_systems']} measured)"
    kind: Kind = "normal"
    if row["size_bytes"] < LARGE_BYTES:
        # Of small sizes latency tells, which a percentile of one size does not: no verdict, but what it is beside others.
        sentence = (
            f"Cannot tell whether this is normal: sizes from {format_size(LARGE_BYTES)} on would tell; {what}, {beside}"
        )
        kind = "cannot-tell"
    elif share < LOW:
        kind, sentence = "slow", f"Slow for such a system: {what}, {beside}"
    elif share > HIGH:
        sentence = f"Fast for such a system: {what}, {beside}"
    else:
        sentence = f"As fast as such systems are: {what}, {beside}"
    figures = [
        ("bus bandwidth", f"{row['busbw_gbs']:.3g} GB/s"),
        ("90 % of such systems", f"{row['p05']:.3g} to {row['p95']:.3g} GB/s"),
        ("the middle of them", f"{row['p50']:.3g} GB/s"),
    ]
    return _answer(kind, sentence, figures, _next(seen, findings))


def _of_table(seen: Judged, findings: list[JobFinding]) -> FirstAnswer | None:
    """Return what a benchmark's table tells without another system beside it: that it was measured cold, where it falls."""
    if seen["exposed_us"] is not None or not seen["bandwidth"]:
        return None
    figures = [(row["op"], _rate(row)) for row in _fastest(seen)]
    cold = next((each for each in findings if each["title"].startswith(COLD)), None)
    if cold is not None:
        sentence = f"Cannot tell what this system reaches: {cold['title']}"
        return _answer("cannot-tell", sentence, figures, cold["command"], [cold["detail"], *cold["evidence"]])
    fall = next((each for each in findings if "fall" in each and each["severity"] == "warning"), None)
    if fall is None:
        return None
    op = str(fall.get("op") or "")
    whose = "" if op in ("", "unknown") else f"{op}: "
    beyond = "at one size" if fall.get("is_spike") else f"past {format_size(int(str(fall['from_bytes'])))}"  # type: ignore[typeddict-item]
    sentence = f"Slow {beyond}: {whose}{fall['title']}"
    return _answer("slow", sentence, figures, fall["command"], [fall["detail"], *fall["evidence"]])


def _largest(normal: list[NormalRow]) -> list[NormalRow]:
    """Return the largest size of each operation."""
    return list({row["op"]: row for row in sorted(normal, key=lambda row: row["size_bytes"])}.values())


def _fastest(seen: Judged) -> list[Row]:
    """Return the row of the highest bandwidth of each operation, the first three."""
    rows = [row for row in seen["bandwidth"] if row.get("busbw_gbs") is not None]
    best = {row["op"]: row for row in sorted(rows, key=lambda row: row["busbw_gbs"])}
    return list(best.values())[:3]


def _rate(row: Row) -> str:
    return (
        f"{row['busbw_gbs']:.3g} GB/s at {format_size(row['size_bytes'])}" if row.get("size_bytes") else "size unknown"
    )


def _of_times(seen: Judged, findings: list[JobFinding]) -> FirstAnswer:
    overlap = seen["overlap"]
    exposed = overlap["exposed_us"] / overlap["span_us"]
    communication = overlap["comm_us"] / overlap["span_us"]
    idle = overlap["idle_us"] / overlap["span_us"]
    figures = [
        ("communication that nothing hides", f"{exposed:.1%}"),
        ("communication in all", f"{communication:.1%}"),
        ("device idle", f"{idle:.1%}"),
    ]
    ranks = len(overlap.get("ranks", [])) or seen["ranks_seen"]
    whose = "the one rank's time" if ranks == 1 else f"the {ranks:,} ranks' time"
    if not overlap["comm_us"]:
        return _answer(
            "cannot-tell", "Nothing communicates here: no collective was recorded", figures, _next(seen, findings)
        )
    if exposed < MUCH_EXPOSED:
        late = (
            "no rank holds the others up" if seen["waits"] else "whether a rank is late cannot be told from these ranks"
        )
        sentence = f"Healthy: {exposed:.1%} of {whose} is communication that no compute hides; {late}"
        return _answer("normal", sentence, figures, _next(seen, findings))
    most = max(overlap.get("operations", []), key=lambda row: row["exposed_us"], default=None)
    of = f", most of it {most['op']}" if most is not None and most["op"] else ""
    sentence = f"Communication costs {exposed:.1%} of {whose}: no compute hides it{of}"
    advice = f"ringwright advise {remedies.inputs(names)}" if (names := remedies.given(seen)) else ""
    return _answer("slow", sentence, figures, advice)


def _untold(seen: Judged, findings: list[JobFinding], times: list[OperationTime]) -> FirstAnswer:
    calls = sum(row["count"] or 0 for row in seen["operations"])
    moved = sum(row["bytes"] or 0 for row in seen["operations"])
    ranks = f"{seen['ranks_seen']:,}" + (f" of {seen['ranks_expected']:,}" if seen["ranks_expected"] else "")
    figures = [("ranks seen", ranks), ("calls", format_count(calls) if calls else "none read")]
    figures.append(("bytes in calls", format_size(moved) if moved else "none read"))
    if not calls and seen["iterations"]:
        return _of_steps(seen, findings)
    if not calls:
        return _answer("cannot-tell", _without_calls(seen, findings), figures, _next(seen, findings))
    if times:
        return _of_calls(seen, findings, times)
    what = "calls and their sizes" if moved else "calls"
    sentence = f"Cannot tell whether it was slow: the recording holds {what}, but not how long they took"
    names = remedies.given(seen)
    return _answer("cannot-tell", sentence, figures, f"ringwright doctor {remedies.inputs(names)}" if names else "")


def _without_calls(seen: Judged, findings: list[JobFinding]) -> str:
    """Say what there is where no call of a collective was read."""
    if any(told_by(row["law"])[0] == "alone" for row in seen["bandwidth"]):
        apart = next(
            (each["title"] for each in findings if each["title"].endswith(APART)), "the benchmark ran on one rank"
        )
        return f"Nothing was measured between ranks: {apart}"
    if seen["bandwidth"]:
        return _of_rows(seen["bandwidth"])
    begun = next((f"; {each['title']}" for each in findings if each["title"].startswith(INITIALISED)), "")
    return f"Cannot tell whether it was slow: no call of a collective was read{begun}"


def _of_steps(seen: Judged, findings: list[JobFinding]) -> FirstAnswer:
    """Say how long steps took where a log tells that and no call: whether that is slow, only another run can tell."""
    steps = [row["time_s"] for row in seen["iterations"] if row["time_s"]]
    told = f"{len(seen['iterations']):,} step{'s were' if len(seen['iterations']) > 1 else ' was'} read"
    if not steps:
        return _answer("cannot-tell", f"Cannot tell whether it was slow: {told}, without their times", [], "")
    figures = [
        ("steps", f"{len(steps):,}"),
        ("a step in the middle", format_time(median(steps))),
        ("fastest to slowest", f"{format_time(min(steps))} to {format_time(max(steps))}"),
    ]
    sentence = (
        f"A step takes {format_time(median(steps))} ({len(steps):,} read); cannot tell whether that is slow, nor what its "
        "communication takes: no call of a collective was read"
    )
    return _answer("cannot-tell", sentence, figures, _next(seen, findings))


def _of_rows(rows: list[Row]) -> str:
    """Say what rows of a table took that no bandwidth follows from, or why they were refused."""
    kept = [row for row in rows if not row["law"]]
    if not kept:
        return (
            f"Cannot tell whether it was slow: all {len(rows)} rows of times were refused: {told_by(rows[0]['law'])[1]}"
        )
    row = max(kept, key=lambda row: row["size_bytes"])
    what = f"{row['op'] or 'unknown'} of {format_size(row['size_bytes'])} takes {_us(row['time_us'])}"
    why = "how many ranks took part is not told" if row["nranks"] is None else "what it moves is not known"
    return f"Cannot tell whether this is normal: {what}, and {why}, so that no bandwidth follows"


def _of_calls(seen: Judged, findings: list[JobFinding], times: list[OperationTime]) -> FirstAnswer:
    """Say where the time of calls goes: they carry times, and nothing is known that would call them slow or not."""
    most = times[0]
    sentence = (
        "Cannot tell whether it was slow: nothing is known to compare its times with; "
        f"most goes into {most.op}, {format_time(most.total_s)} a rank{_waiting(seen, most.op)}"
    )
    figures = [
        (row.op, f"{format_count(row.calls)} call{'s' * (row.calls != 1)}, {format_time(row.median_s)} in the middle")
        for row in times[:3]
    ]
    return _answer("cannot-tell", sentence, figures, _next(seen, findings))


def _waiting(seen: Judged, op: str) -> str:
    """Say how much of an operation's time is waiting for others, where that is told."""
    waits = [row["wait_us"] * row["samples"] for row in seen["bandwidth"] if row["op"] == op and row["wait_us"]]
    return f", {_us(sum(waits))} of it waiting for other ranks" if waits else ""


def _next(seen: Judged, findings: list[JobFinding]) -> str:
    """Return the command of the most severe finding that has one; else what shows everything."""
    for severity in ("error", "warning"):
        for each in findings:
            if each["severity"] == severity and each["command"]:
                return each["command"]
    return remedies.report(seen)


def _answer(
    kind: Kind, sentence: str, figures: list[tuple[str, str]], command: str, evidence: list[str] | None = None
) -> FirstAnswer:
    """Return an answer; without ``evidence`` of its own it rests on its figures."""
    told: list[Figure] = [{"name": name, "value": value} for name, value in figures[:3]]
    rests_on = evidence if evidence is not None else [f"{name}: {value}" for name, value in figures[:3]]
    sentence = sentence.rstrip(".") + "."
    return {
        "kind": kind,
        "sentence": sentence,
        "figures": told,
        "command": command,
        "evidence": rests_on[:5],
        "ranks": [],
    }


def _us(time_us: float) -> str:
    return format_time(time_us * 1e-6)
