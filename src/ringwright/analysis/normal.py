"""Is this bandwidth normal? What was measured against what other systems with such GPUs, nodes and network reached.

The measure is the learnt model of ``costs.learnt``: tables of many systems around NCCL's own closed form. A table that does not
say its GPU or nodes is compared with nothing; one that does not name its network with every one that was measured between so many
nodes, plain sockets apart, with as many NICs as such nodes usually have, and with half of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.analysis import remedies
from ringwright.analysis.bandwidth import bus_factor
from ringwright.analysis.benchmarks import BenchmarkTimes, tables
from ringwright.analysis.library_of_calls import OF_NCCL, UNKNOWN, made_by
from ringwright.analysis.normal_document import NormalRow
from ringwright.analysis.table_claims import TableClaims
from ringwright.costs.learnt.call import LibraryCall
from ringwright.costs.learnt.prior import shipped
from ringwright.costs.learnt.table_machine import described
from ringwright.costs.learnt.trusted import Expected, expected
from ringwright.costs.transports import NETWORKS, carrier
from ringwright.ground.units import format_size

if TYPE_CHECKING:
    from ringwright.analysis.document import JobFinding, Row
    from ringwright.costs.learnt.prior import Prior
    from ringwright.costs.nccl.node_types import NodeType
    from ringwright.model.trace import Trace

LARGE_BYTES = 16 << 20  # from here on bandwidth and not latency decides
MOST_TABLES = 64  # that are compared: some 50 ms each
FEWEST_SYSTEMS = 5  # of which a percentile can be told
SOCKETS = "tcp"
_OTHER_LIBRARY = "{} made its calls, and what other systems reach is known of NCCL"
NAMED_BY = "network"  # the claim that names what joins the nodes: NCCL's "Using network"
TAILS = (0.05, 0.5, 0.95)
SIMULATED_TIMES = "its times are simulated, and compared with no measured system"
HALVINGS = 60  # of an interval, in which a quantile of several networks is looked for


@dataclass(frozen=True)
class Normal:
    """The rows, and for each table that was compared with nothing the reason."""

    rows: list[NormalRow]
    unknown: list[str]


def normal(trace: Trace, rates: list[Row] | None = None) -> Normal:
    """Return each size of the tables of a Trace beside what systems of its kind reach; ``rates``: its bandwidth where known."""
    if trace.meta.get("source") == remedies.SIMULATED:
        return Normal([], [SIMULATED_TIMES])
    rows: list[NormalRow] = []
    unknown: dict[str, list[str]] = {}
    mine = [each for each in tables(trace, rates) if each.source != "perf-table" and each.sizes]
    network, library = _network(trace), made_by(trace.meta)
    for table in mine[:MOST_TABLES]:
        told = _compared(table, network, library)
        if isinstance(told, str):
            unknown.setdefault(told, []).append(table.label)
        else:
            rows += told
    said = [f"{', '.join(labels[:3])}{' ...' * (len(labels) > 3)}: {why}" for why, labels in unknown.items()]
    if len(mine) > MOST_TABLES:
        said.append(f"{len(mine) - MOST_TABLES:,} of {len(mine):,} tables: only the first {MOST_TABLES} are compared")
    return Normal(rows, said)


def _network(trace: Trace) -> str:
    """Return the network that NCCL used, in its words; empty where no log says it, or logs name several."""
    told = TableClaims(trace, (NAMED_BY,)).job(NAMED_BY)
    return "" if told is None or told.is_disputed else told.value


def _with_fewer_nics(call: LibraryCall, op: str, facts: Mapping[str, str]) -> tuple[list[LibraryCall], list[str]]:
    if call.system.nodes < 2 or call.kind.nics < 2:
        return [], []
    fewer = described(op, {**facts, "inter_node": _half(call.kind)}, call.sizes_bytes)
    said = f"NICs a node: {call.kind.nics} or {call.kind.nics // 2} of {call.kind.nic_gbs * 8:g} Gb/s"
    return [fewer] if isinstance(fewer, LibraryCall) else [], [said]


def _compared(table: BenchmarkTimes, network: str, library: str) -> list[NormalRow] | str:
    """Return the rows of a table, or in words why there are none."""
    if table.variant:
        return "its algorithm was forced"
    if not table.gpu:
        return "it does not name its GPU" if library in (*OF_NCCL, UNKNOWN) else _OTHER_LIBRARY.format(library.upper())
    nodes = table.nnodes
    if not table.nranks or not nodes or table.nranks % nodes:
        return "it does not name its nodes"
    prior = shipped()
    facts = {
        "gpu": table.gpu,
        "nodes": str(nodes),
        "gpus_per_node": str(table.nranks // nodes),
        "software": f"NCCL {table.release}" if table.release else "",
    }
    call = described(table.op, facts, tuple(table.sizes))
    if isinstance(call, str):
        return call
    assumed = [] if table.release else [f"NCCL {call.release}"]
    fewer, said_of_nics = _with_fewer_nics(call, table.op, facts)
    shapes = [call, *fewer]
    assumed += said_of_nics
    carriers = _carriers(call, network, prior)
    if len(carriers) > 1:
        assumed.append(f"network: one of {', '.join(carriers)}")
    calls = [replace(each, transport=over) if nodes > 1 else each for each in shapes for over in carriers]
    said = list(zip(*expected(calls, (), prior), strict=True))
    systems = sum(prior.seen[each].systems for each in carriers if each in prior.seen)
    if systems < FEWEST_SYSTEMS:
        return f"{systems} such system{'s were' if systems != 1 else ' was'} measured, and a percentile needs {FEWEST_SYSTEMS}"
    return [_row(table, each, systems, assumed) for each in said]


def _half(kind: NodeType) -> str:
    """Return half of a node's NICs, as tables write them."""
    return f"{kind.nics / 2 / min(1.0, kind.gpus / 8):g} x {kind.nic_gbs * 8:g} Gb/s"


def _carriers(call: LibraryCall, network: str, prior: Prior) -> list[str]:
    """Return the networks that may join the nodes: the named one, else those that were measured between as many nodes."""
    if call.system.nodes < 2:
        return [call.carrier]
    named = carrier(network, "") if network else ""
    if named:
        return [named]
    known = [each for each in NETWORKS if each != SOCKETS and each in prior.seen]
    near = [each for each in known if prior.seen[each].nodes[0] <= call.system.nodes <= prior.seen[each].nodes[1]]
    return near or known


def _row(table: BenchmarkTimes, said: Sequence[Expected], systems: int, assumed: list[str]) -> NormalRow:
    size = said[0].size_bytes
    time_s, factor = table.steady_s(size), bus_factor(table.op, table.nranks) or 1.0
    low, middle, high = (size / _quantile_s(said, 1 - share) / 1e9 * factor for share in TAILS)
    known = set.intersection(*(set(each.outside) for each in said))
    return {
        "table": table.name,
        "op": table.op,
        "size_bytes": size,
        "busbw_gbs": size / time_s / 1e9 * factor,
        "percentile": 100 * (1 - _share_below(said, time_s)),
        "p05": low,
        "p50": middle,
        "p95": high,
        "n_systems": systems,
        "outside": [each for each in said[0].outside if each in known],
        "assumed": list(assumed),
    }


def _share_below(said: Sequence[Expected], time_s: float) -> float:
    """Return which share of systems takes less than a time, each of several networks as probable as the other."""
    shares = [0.5 * math.erfc(math.log(each.p50_s / time_s) / each.sigma / math.sqrt(2)) for each in said]
    return sum(shares) / len(shares)


def _quantile_s(said: Sequence[Expected], share: float) -> float:
    """Return the time below which that share of systems lies."""
    logs = [math.log(each.p50_s) for each in said]
    widest = 8 * max(each.sigma for each in said)
    low, high = min(logs) - widest, max(logs) + widest
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_below(said, math.exp(middle)) < share else (low, middle)
    return math.exp((low + high) / 2)


def findings(trace: Trace, rows: Sequence[NormalRow]) -> list[JobFinding]:
    """Return a warning for each table whose largest size is slower than 95 % of such systems."""
    largest: dict[tuple[str, str], NormalRow] = {}
    for each in rows:
        before = largest.get((each["table"], each["op"]))
        if each["size_bytes"] >= LARGE_BYTES and (before is None or before["size_bytes"] < each["size_bytes"]):
            largest[each["table"], each["op"]] = each
    return [_slow(trace, each) for each in largest.values() if each["percentile"] < 100 * TAILS[0]]


def _slow(trace: Trace, row: NormalRow) -> JobFinding:
    size = format_size(row["size_bytes"])
    detail = (
        f"{row['op']} of {row['table']}: {row['busbw_gbs']:.2f} GB/s at {size}; nine in ten of such systems reach "
        f"{row['p05']:.2f} to {row['p95']:.2f} GB/s ({row['n_systems']} were measured)"
    )
    evidence = [
        *(f"assumed: {each}" for each in row["assumed"]),
        *(f"none was like it in: {each}" for each in row["outside"]),
    ]
    title = f"slower than {100 - max(1, math.ceil(row['percentile'])):.0f} % of such systems"
    return {
        "severity": "warning",
        "title": title,
        "detail": detail,
        "evidence": evidence,
        "command": remedies.report(trace.meta),
    }
