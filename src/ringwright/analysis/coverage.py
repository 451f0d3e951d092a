"""What a recording covers, in a line, and what it cannot say."""

from __future__ import annotations

from ringwright.analysis.document import Facts
from ringwright.analysis.findings import is_log
from ringwright.analysis.library_of_calls import release

_ONLY_THE_LOG = [
    "when a collective ran or how long it took: the line is printed when it is enqueued",
    "operations replayed from a CUDA graph: only their capture prints lines",
    "who waited for whom, unless a watchdog or RAS text is in the log",
]
_CALLS_WITHOUT_TIMES = ("nccl-log", "nccl-log+megatron-log")


def limits_of(facts: Facts) -> list[str]:
    """Return what the recording does not say, a sentence each."""
    limits = list(_ONLY_THE_LOG) if facts["source"] in _CALLS_WITHOUT_TIMES else []
    if facts["timeline"] is None and facts["operations"]:
        what = "lines" if is_log(facts) else "records"
        carry = "how long calls took, not when they began" if facts["bandwidth"] else "no time"
        limits.append(f"bursts and time course: the {what} carry {carry}")
    if not facts["algorithms"] and facts["operations"]:
        why = "no TUNING lines" if is_log(facts) else "the source does not say"
        limits.append(f"which algorithm ran: {why}; the byte matrix assumes rings")
    limits += facts["told_limits"]
    limits += [f"passed over: {text}" for text in facts["passed_over"][:5]]
    unsized = [row["op"] for row in facts["operations"] if row["unsized"]]
    if unsized:
        limits.append(f"bytes of {', '.join(unsized)}: calls without a size are counted, their bytes are not")
    return [*limits, *facts["not_examined"]]


def coverage(facts: Facts) -> str:
    """Return how much was read, of which ranks, in one line."""
    expected = facts["ranks_expected"]
    ranks = f"{facts['ranks_seen']}/{expected if expected is not None else '?'} ranks"
    hosts = f"{facts['hosts']} host{'s' if facts['hosts'] != 1 else ''}"
    ledger = facts["ledger"]
    unit = "lines" if is_log(facts) else "records"
    counts = f"{ledger['lines']:,} {unit}: {ledger['understood']:,} understood, {ledger['repaired']:,} repaired, "
    counts += f"{ledger['refused']:,} refused, {ledger['other']:,} other"
    if not ledger["lines"] and facts["operations"]:
        counts = "no ledger of what was read"
    where = f"{ranks} on {hosts}" if facts["hosts"] else ranks
    gone = ledger["missing"]
    share = gone / (gone + ledger["understood"] + ledger["repaired"]) if gone else 0.0
    lost = f", {gone:,} missing ({share:.1%} by sequence numbers)" if gone else ""
    whole = f"{where} · {release(facts)} · {counts}{lost}"
    return whole if is_log(facts) else f"{facts['kind']}{_asked(facts)} · {whole}"


def _asked(facts: Facts) -> str:
    """Return of what a simulation was asked: the machine, its faults, and by which release."""
    asked = facts["asked"]
    if not asked:
        return ""
    by, on, faults = (asked.get(name) for name in ("version", "fabric", "faults"))
    told = [f"ringwright {by}"] if by else []
    told += [f"of {on}"] if on else []
    told += [f"with {'; '.join(map(repr, faults))}"] if isinstance(faults, list) and faults else []
    return f" ({', '.join(told)})"
