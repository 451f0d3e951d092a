"""Expected against measured: NCCL's own cost model, equal clusters, and cliffs between neighbouring sizes.

A prediction of NCCL's model is what NCCL compares algorithms by, not what a wire measures; on large sizes it comes near to
a well-configured machine. Clusters are compared only when operation, ranks and GPU agree (and nodes, where both say them).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.analysis import remedies
from ringwright.analysis.benchmarks import BenchmarkTimes, release_of, system_of, tables
from ringwright.analysis.document import CliffFinding, JobFinding
from ringwright.analysis.peers import Peers
from ringwright.costs import nccl, open_mpi
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.ground.units import format_size

if TYPE_CHECKING:
    from ringwright.analysis.document import Row
    from ringwright.costs.nccl import NcclChoice, NcclSystem
    from ringwright.model.trace import Trace

LARGE_BYTES = 16 << 20  # from here on bandwidth and not latency decides
SLOW, MUCH_SLOWER = 1.5, 3.0
NEAR = 1.25
SOCKET = "Socket"  # NCCL's word for plain sockets
_MODELLED = {"open-mpi": "open-mpi", "mpich": "mpich2", "mvapich": "mvapich"}  # library of MPI -> slug of its rules
_NOT_BLOCKING = re.compile(r"\bI(?:all|bcast|reduce|gather|scatter|barrier)|non-blocking", re.IGNORECASE)
SPIKE = 1.5  # times the next larger size
CLIFF = 0.7  # of the bandwidth of the next smaller size
_ORDER = {"error": 0, "warning": 1, "info": 2}
_LOOK = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH NCCL_DEBUG_FILE=nccl.%h.%p.log"


def expected(
    trace: Trace,
    others: Sequence[Trace] = (),
    *,
    box: str | None = None,
    release: str | None = None,
    rates: list[Row] | None = None,
) -> list[JobFinding]:
    """Return findings on what was measured, the most severe first: {severity, title, detail, evidence, command}.

    ``others``: Traces of benchmarks or performance tables to compare with; tables of one Trace are compared with each
    other too. ``box`` (``dgx-a100:2``) and ``release`` say what the Trace does not, for NCCL's model; ``rates`` is
    the Trace's bandwidth where that is known already.
    """
    mine = [table for table in tables(trace, rates) if table.source != "perf-table" and table.sizes]
    peers = Peers([*mine, *(table for other in others for table in tables(other) if table.sizes)])
    findings: list[JobFinding] = []
    unsure: dict[str, list[str]] = {}
    for table in mine:
        findings += _against_peers(table, peers)
        try:
            findings += _against_model(table, box, release)
        except RingwrightError as error:
            unsure.setdefault(error.what, []).append(table.label)
    for reason, labels in unsure.items():
        detail = f"{reason}; so nothing is said about {_some(labels)}"
        findings.append(_finding("info", "cannot tell what NCCL's model expects", detail, labels[:8], ""))
    if peers.left_out:
        detail = f"{peers.left_out:,} of {len(mine):,} tables: their sizes differ too much to compare each with each"
        findings.append(_finding("info", "not every table was compared with equal clusters", detail, [], ""))
    return sorted(_with_command(trace, findings), key=lambda item: _ORDER[item["severity"]])


def _with_command(trace: Trace, findings: list[JobFinding]) -> list[JobFinding]:
    """Return the findings, those without a command of their own with the one that shows everything."""
    usual = remedies.report(trace.meta)
    return [{**item, "command": item["command"] or usual} for item in findings]


def _finding(severity: str, title: str, detail: str, evidence: list[str], command: str) -> JobFinding:
    return {"severity": severity, "title": title, "detail": detail, "evidence": evidence, "command": command}


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# -------------------------------------------------------------------------------------------------------------- peers
def _against_peers(table: BenchmarkTimes, peers: Peers) -> list[JobFinding]:
    """Compare with the best equal cluster at the largest size that both have."""
    best = peers.best(table, LARGE_BYTES)
    if best is None:
        return []
    factor, size, peer = best.factor, best.size_bytes, best.table
    here, there = table.bus_gbs(size) or 0.0, peer.bus_gbs(size) or 0.0
    where = "the same hosts" if table.hosts and table.hosts == peer.hosts else "an equal cluster"
    detail = (
        f"{table.label}: {here:.2f} GB/s at {format_size(size)} against {there:.2f} GB/s of {peer.name} on {where} "
        f"({_machine(table)}; bus bandwidth, GB = 10^9)"
    )
    evidence = [_compared(table, peer, size) for size in _samples(table, peer, size)]
    if factor < SLOW:
        return [_finding("info", f"as fast as {where}", detail, evidence, "")] if factor > 1 / SLOW else []
    words, command = _cause(table, factor, size, peer)
    return [_finding("warning", f"{factor:.1f}x below {where}{words}", detail, evidence, command)]


def _machine(table: BenchmarkTimes) -> str:
    nodes = f" on {table.nnodes} node{'s' * (table.nnodes > 1)}" if table.nnodes else ""
    return f"{table.nranks} x {table.gpu}{nodes}"


def _samples(table: BenchmarkTimes, peer: BenchmarkTimes, largest: int) -> list[int]:
    """Return up to four sizes that both have, spread from the smallest to ``largest``."""
    shared = [size for size in table.sizes if size <= largest and peer.at(size) is not None]
    picks = {0, len(shared) // 3, 2 * len(shared) // 3, len(shared) - 1}
    return [shared[pick] for pick in sorted(picks)]


def _compared(table: BenchmarkTimes, peer: BenchmarkTimes, size: int) -> str:
    here, there = table.at(size) or 0.0, peer.at(size) or 0.0
    return f"{format_size(size)}: {here * 1e6:,.1f} us against {there * 1e6:,.1f} us ({here / there:.1f}x)"


def _cause(table: BenchmarkTimes, factor: float, size: int, peer: BenchmarkTimes) -> tuple[str, str]:
    """Return what such a factor looks like, and what would show it."""
    if factor < MUCH_SLOWER:
        return "", _LOOK
    if (table.nnodes or 1) > 1:
        if table.network == SOCKET:
            return ": its log says that traffic between nodes goes over plain sockets", _LOOK
        if table.network:
            return f": its log names the network {table.network}, so that plain sockets are not the cause", _LOOK
        # plain sockets move a few GB/s however many cards there are; a wrong algorithm does not cost this much
        return ": looks like default network settings (sockets instead of RDMA or the vendor's plug-in)", _LOOK
    return ": looks like traffic that left NVLink (peer access off, or PCIe)", _LOOK


# -------------------------------------------------------------------------------------------------------- NCCL's model
def _against_model(table: BenchmarkTimes, box: str | None, release: str | None) -> list[JobFinding]:
    """Compare the largest size with what NCCL itself predicts; RingwrightError where the model cannot say."""
    large = [size for size in table.sizes if size >= LARGE_BYTES]
    if not large or table.variant or not table.is_of_nccl:
        return []  # latency alone, an algorithm that was forced, or another library
    size = large[-1]
    if table.op not in nccl.OPS:
        raise UsageError(f"NCCL's model has no cost for {table.op}")
    system, ground = system_of(table, box)
    choices, version = _choices(table, size, system, release)
    low, high = choices[0], choices[-1]  # by time: the fastest and the slowest prediction
    measured_us = table.steady_s(size) * 1e6
    factor = measured_us / min(max(measured_us, low.time_us), high.time_us)  # 1 within the range
    how = f"{_ways(choices)}; {ground}; {version}; a model, not a measurement"
    detail = f"{table.label}: {_rates(table, size, low, high)} ({how})"
    evidence = [f"measured {measured_us:,.1f} us, model {_span(low.time_us, high.time_us)} us", ground, version]
    if factor >= SLOW * 4 / 3:
        words, command = _cause(table, factor, size, table)
        return [_finding("warning", f"{factor:.1f}x below NCCL's own cost model{words}", detail, evidence, command)]
    if factor < 0.5:
        title = f"{1 / factor:.1f}x above NCCL's own cost model: is the box another one, or the size counted otherwise?"
        return [_finding("warning", title, detail, evidence, "")]
    slow, fast = low.time_us / measured_us, high.time_us / measured_us
    near = f"{slow:.0%}" if f"{slow:.0%}" == f"{fast:.0%}" else f"{slow:.0%} to {fast:.0%}"
    is_near = 1 / NEAR <= factor <= NEAR
    title = f"near NCCL's own cost model ({near} of it)" if is_near else f"{near} of what NCCL's own cost model says"
    return [_finding("info", title, detail, evidence, "")]


def _rates(table: BenchmarkTimes, size: int, low: NcclChoice, high: NcclChoice) -> str:
    """Say what was measured beside what the model says, as bus bandwidths."""
    here, measured_us = table.bus_gbs(size) or 0.0, table.steady_s(size) * 1e6
    slow, fast = (here * measured_us / choice.time_us for choice in (high, low))
    whose = f"NCCL {low.release}'s" if low is high else "NCCL's"
    return f"{here:.2f} GB/s at {format_size(size)}, {whose} own model says {_span(slow, fast)} GB/s"


def _span(low: float, high: float) -> str:
    """Write two figures as a range, or one where they are the same."""
    texts = [f"{value:,.2f}" for value in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _ways(choices: list[NcclChoice]) -> str:
    choices_said = dict.fromkeys(
        f"{choice.algorithm}/{choice.protocol}, {choice.channels} channels" for choice in choices
    )
    return _some(list(choices_said))


def _choices(table: BenchmarkTimes, size: int, system: NcclSystem, release: str | None) -> tuple[list[NcclChoice], str]:
    """Return what NCCL would do, the fastest first: one choice of a known release, else that of each that knows the GPU.

    A release is never picked because it fits what was measured.
    """
    if release or table.release:
        version = release_of(table, release)
        return [nccl.choose(table.op, size, system, version)], f"release {version}"
    known = [version for version in nccl.releases() if nccl.knows(version, system)] or list(nccl.releases())[-1:]
    choices = [nccl.choose(table.op, size, system, version) for version in known]
    told = f"release not known: the range over the releases {known[0]} to {known[-1]}"
    return sorted(choices, key=lambda choice: choice.time_us), told


# -------------------------------------------------------------------------------------------------------------- cliffs
def cliffs(
    trace: Trace, *, box: str | None = None, release: str | None = None, rates: list[Row] | None = None
) -> list[CliffFinding]:
    """Return every fall of bandwidth by more than 30 % from one size to the next, the deepest first.

    A size that takes longer than the next larger one, and far longer than both neighbours suggest, is called so: a spike.
    Each is a finding with ``op``, ``table``, ``from_bytes``, ``to_bytes``, ``fall`` (share of bandwidth lost) and ``model``:
    what NCCL's model changes there, or why it cannot tell. A fall that the in-place run does not show is the cost of a
    first call (loading a kernel) and is marked so. ``rates`` is the Trace's bandwidth where that is known already.
    """
    findings: list[CliffFinding] = []
    usual = remedies.report(trace.meta)
    for table in tables(trace, rates):
        sizes = table.sizes
        for low, high in itertools.pairwise(sizes):
            cliff = _cliff(table, low, high)
            if cliff is not None:
                _name_spike(cliff, table)
                cliff["model"] = _change(table, low, high, box, release)
                cliff["detail"] += f". {cliff['model']}"
                cliff["command"] = cliff["command"] or usual
                findings.append(cliff)
    return sorted(findings, key=lambda item: (_ORDER[item["severity"]], -item["fall"]))


def _cliff(table: BenchmarkTimes, low: int, high: int) -> CliffFinding | None:
    """Return the finding on a pair of sizes, None where bandwidth does not fall."""
    sides = [
        times for times in (table.times_s, table.inplace_s) if times.get(low, 0.0) > 0 and times.get(high, 0.0) > 0
    ]
    kept = [(high / times[high]) / (low / times[low]) for times in sides if low > 0]
    if not kept or min(kept) >= CLIFF:
        return None
    share = min(kept)
    times = sides[kept.index(share)]
    is_first = len(kept) == 2 and max(kept) >= 0.9
    rates = [size / times[size] / 1e9 for size in (low, high)]
    where = (" out of place only" if times is table.times_s else " in place only") if is_first else ""
    title = f"bandwidth falls by {1 - share:.0%} from {format_size(low)} to {format_size(high)}{where}"
    detail = f"{table.label}: {rates[0]:.2f} to {rates[1]:.2f} GB/s (n/t), {times[low] * 1e6:,.1f} to {times[high] * 1e6:,.1f} us"
    if is_first:
        detail += "; the other run does not show it: looks like the cost of a first call or a disturbance"
    evidence = [f"{format_size(size)}: {times[size] * 1e6:,.1f} us" for size in (low, high)]
    command = remedies.perf(table.op, low, high, table.source)
    result = _finding("info" if is_first else "warning", title, detail, evidence, command)
    return {
        **result,
        "op": table.op,
        "table": table.name,
        "from_bytes": low,
        "to_bytes": high,
        "fall": round(1 - share, 4),
        "model": "",
        "is_spike": False,
    }


def _rules_of(table: BenchmarkTimes, low: int, high: int) -> str:
    """Return the command that tells what the rules of a library of MPI choose around two sizes; "" where none is modelled."""
    library = _MODELLED.get(table.software)
    if library is None or not table.nranks:
        return ""
    asked = f"--collective {table.op} --ranks {table.nranks}{f' --nodes {table.nnodes}' if table.nnodes else ''}"
    known = _built_in(table, low, high) if library == "open-mpi" else ""
    return (
        f"; {known}what the rules of {table.software} choose: ringwright library {library} {asked} -b {low} -e {high}"
    )


def _built_in(table: BenchmarkTimes, low: int, high: int) -> str:
    """Say what Open MPI's built-in rules take at two sizes; "" for what they do not rule, as calls that do not block."""
    op = "reduce-scatter-block" if table.op == "reduce-scatter" and "block" in table.name.lower() else table.op
    if op not in open_mpi.collectives() or _NOT_BLOCKING.search(table.name) or not table.nranks:
        return ""
    disjoint = table.nnodes == table.nranks
    sizes = [low, high, *[size for size in table.sizes if size > high][:1]]
    taken = [(size, open_mpi.select(op, table.nranks, size, disjoint=disjoint).name) for size in sizes]
    pairs = itertools.pairwise(taken)
    changes = [f"from {old} to {new} at {format_size(size)}" for (_, old), (size, new) in pairs if old != new]
    told = f"change {' and '.join(changes)}" if changes else f"take {taken[0][1]} at these sizes, without a change"
    unless = f", unless what its line sets decides first ({table.components})" if table.components else ""
    return f"{table.software}'s built-in rules (coll/tuned of {open_mpi.RELEASE}) {told}{unless}; "


def _name_spike(cliff: CliffFinding, table: BenchmarkTimes) -> None:
    """Call a cliff a spike where the next larger size takes less time, and a line between both neighbours far less."""
    low, high = cliff["from_bytes"], cliff["to_bytes"]
    beyond = next((size for size in table.sizes if size > high), None)
    if beyond is None or table.steady_s(beyond) >= table.steady_s(high) / SPIKE:
        return
    share = math.log(high / low) / math.log(beyond / low)
    between = table.steady_s(low) ** (1 - share) * table.steady_s(beyond) ** share
    times = [table.steady_s(size) * 1e6 for size in (low, high, beyond)]
    if times[1] < SLOW * between * 1e6:
        return
    cliff["is_spike"] = True
    cliff["title"] = f"{format_size(high)} takes {times[1] / between / 1e6:.1f} times what its neighbours suggest"
    cliff["detail"] = (
        f"{table.label}: {times[1]:,.1f} us, between {times[0]:,.1f} us at {format_size(low)} and {times[2]:,.1f} us at "
        f"{format_size(beyond)}: looks like a switch of algorithm, or a call that something disturbed"
    )
    cliff["evidence"].append(f"{format_size(beyond)}: {times[2]:,.1f} us")
    cliff["command"] = remedies.perf(table.op, low, beyond, table.source)


def _change(table: BenchmarkTimes, low: int, high: int, box: str | None, release: str | None) -> str:
    """Say what NCCL's model changes between two sizes, or why it cannot tell."""
    if not table.is_of_nccl:
        return f"Which algorithm {table.library.upper()} takes at each size is not printed" + _rules_of(
            table, low, high
        )
    try:
        version = release_of(table, release)
        system, ground = system_of(table, box)
        first, second = (nccl.choose(table.op, size, system, version) for size in (low, high))
    except RingwrightError as error:
        return f"Cannot tell whether NCCL changes algorithm there: {error.what}"
    before, after = (f"{choice.algorithm}/{choice.protocol}" for choice in (first, second))
    if before == after:
        return f"NCCL {first.release}'s model keeps {before} there ({ground}): its choice does not explain it"
    return f"NCCL {first.release}'s model changes from {before} to {after} there ({ground})"
