"""Every column of a Trace's tables and every field of its meta changes an answer, or is listed as informative with its reason."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from every_recording import MADE, put
from ringwright.analysis.metrics import metrics
from ringwright.analysis.summary import summarise
from ringwright.capture.recordings import about
from ringwright.formats.exports.perfetto import perfetto
from ringwright.formats.exports.prometheus import lines
from ringwright.formats.exports.workload_json import workload_json
from ringwright.formats.sources import read
from ringwright.formats.sources.sample import sample
from ringwright.ground.errors import RingwrightError
from ringwright.ground.saved_trace import META
from ringwright.ground.trace_tables import TABLES, rows, schema
from ringwright.jobs.one_clock import one_clock
from ringwright.model.trace import Trace
from ringwright.workloads.replay import replay
from ringwright_lab.contracts.source import check_trace
from ringwright_lab.sweep import measure

pytestmark = pytest.mark.once


def job() -> Trace:
    """Return a hand-made job of two ranks on two hosts: four steps of a kernel and an all-reduce, then an error."""
    events, edges = [], []
    for rank in (0, 1):
        of = {"rank": rank, "host": f"n{rank}", "multiplicity": 1, "records": 1, "clock": "one", "confidence": 1.0}
        for step in range(4):
            at = of | {"iteration": step, "ground": "read", "source": "made", "file": f"r{rank}", "line": step + 1}
            begin = step * 1e-3 + rank * 1e-5
            edges.append({"src_event": len(events) + 1, "dst_event": len(events) + 2, "kind": "data"})
            events += [
                at | {"kind": "step", "start_s": begin, "duration_s": 9e-4},
                at
                | {"kind": "compute", "kernel": "gemm", "kernel_class": "compute", "thread": 3, "phase": "backward"}
                | {"start_s": begin, "duration_s": 4e-4 + rank * 1e-5},
                at
                | {"kind": "collective", "op": "all-reduce", "communicator": 0, "comm_rank": rank, "nranks": 2}
                | {"sequence": step, "size_bytes": 1 << 20, "datatype": "float32", "element_bytes": 4, "phase": "b"}
                | {"layer": "l1", "start_s": begin + 5e-4, "duration_s": 3e-4 - rank * 1e-5, "count": 1 << 18},
            ]
        events.append(of | {"kind": "error", "op": "completion", "code": 12, "text": "retry", "start_s": 5e-3})
    tables = {
        "events": events,
        "edges": edges,
        "claims": [{"field": "gpu", "value": "H100", "source": "r0", "ground": "read", "confidence": 1.0}],
        "ledger": [{"file": "r0", "outcome": "understood", "reason": "rows", "lines": 18}],
    }
    frames = {name: rows(name, each) for name, each in tables.items()} | {
        "communicators": group(2),
        "topology": devices(2),
    }
    return Trace.of(frames, {"source": "made", "world": 2})


def bins() -> Trace:
    """Return what a long log keeps when its records are folded: bytes per second and operation."""
    told = [("all-reduce", 0.0, 1e6), ("all-reduce", 1.0, 5e6), ("broadcast", 7.0, 2e6)]
    held = [{"src": op, "link": "operation", "bin_start_s": at, "bin_s": 1.0, "bytes": of} for op, at, of in told]
    return Trace.of({"links": rows("links", held)}, {"source": "made"})


def benchmark() -> Trace:
    """Return rows of a benchmark that says its bandwidth and not the size of its group."""
    same = {"kind": "measurement", "op": "all-reduce", "text": "t", "value": 7.0, "duration_s": 1e-3, "multiplicity": 1}
    return Trace.of({"events": rows("events", [same | {"size_bytes": 1 << n} for n in (20, 21)])}, {"source": "made"})


def exchange() -> Trace:
    """Return three ranks that each send to the others and receive from them: an all-to-all, as counts and sizes tell."""
    same = {
        "kind": "p2p",
        "communicator": 0,
        "nranks": 3,
        "count": 5,
        "size_bytes": 20,
        "multiplicity": 1,
        "records": 1,
    }
    pairs = [(op, own, peer) for own in range(3) for peer in range(3) if own != peer for op in ("send", "recv")]
    events = [same | {"op": op, "rank": own, "comm_rank": own, "peer": peer} for op, own, peer in pairs]
    return Trace.of({"events": rows("events", events), "communicators": group(3)}, {"source": "made"})


def hang() -> Trace:
    """Return a rank that stands at a receive although its peer has sent, which is known where no call was lost."""
    calls = [(1, "send", 0, "completed", 0), (0, "recv", 1, "started", 0)]
    names = ("rank", "op", "peer", "state", "op_count")
    same = {"kind": "p2p", "communicator": 0, "nranks": 3, "source": "calls", "file": "f", "multiplicity": 1}
    events = [
        same | {"comm_rank": each[0], "sequence": each[4]} | dict(zip(names, each, strict=True)) for each in calls
    ]
    frames = {"events": rows("events", events), "communicators": group(3), "topology": devices(3)}
    return Trace.of(frames, {"source": "made", "world": 3})


def group(size: int) -> pl.DataFrame:
    """Return the communicator of all ranks."""
    row = {"communicator": 0, "comm_id": "a", "name": "dp", "size": size, "members": [*range(size)], "ranks_seen": size}
    role = {"role": "dp", "role_evidence": "named", "ground": "read", "confidence": 1.0}
    return rows("communicators", [row | role])


def devices(size: int) -> pl.DataFrame:
    """Return where the ranks are: each on a host of its own."""
    return rows("topology", [{"kind": "device", "rank": n, "host": f"n{n}", "device": 0} for n in range(size)])


Base = tuple[Trace, dict[str, str]]


def perfetto_text(trace: Trace) -> str:
    with tempfile.TemporaryDirectory() as folder:
        [path] = perfetto(one_clock(trace), Path(folder) / "timeline.json")
        return path.read_text()


READERS: dict[str, Callable[[Trace], Any]] = {
    "summary": summarise,
    "contract": lambda trace: check_trace(trace).failed,
    "metrics": metrics,
    "prometheus": lines,
    "replay": lambda trace: workload_json(replay(trace)),
    "sweep": lambda trace: measure.calls(trace)["role"].to_list(),
    "line": lambda trace: (repr(trace), about(trace)),
    "perfetto": perfetto_text,
}


def asked(question: Callable[[], Any]) -> str:
    try:
        return str(question())
    except RingwrightError as error:
        return f"refused: {error}"


def told(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield what each reader of a Trace says of it; what none of them can read is refused, which is noticing too."""
    for name, read_it in READERS.items():
        yield name, asked(lambda read_it=read_it: read_it(trace))  # type: ignore[misc]


@pytest.fixture(scope="module")
def bases() -> list[Base]:
    """Return Traces of several kinds, small ones first, each with what is said of it."""
    traces = (benchmark(), job(), bins(), exchange(), hang(), read(str(sample())))
    return [(trace, dict(told(trace))) for trace in traces]


def changed(trace: Trace, table: str, column: str) -> list[Trace]:
    """Return the Trace with other values in a column, and with none in every second row."""
    frame, kind = trace.table(table), schema(table)[column]
    value, row = pl.col(column), pl.int_range(pl.len())
    if kind == pl.String:
        other = value.fill_null("") + "x"
    elif kind == pl.Boolean:
        other = ~value.fill_null(value=False)
    elif kind == pl.List(pl.Int32):
        other = value.list.eval(pl.element() + 1)
    else:
        other = value.fill_null(0) * 2 + 1 + row
    holes = pl.when(row % 2 == 0).then(value)
    frames = [frame.with_columns(each.cast(kind, strict=False).alias(column)) for each in (other, holes)]
    return [replace(trace, tables={**trace.tables, table: each.lazy()}) for each in frames if not each.equals(frame)]


def is_noticed(bases: list[Base], change: Callable[[Trace], list[Trace]]) -> bool:
    """Return whether anybody says something else of a changed Trace, of any kind; whoever follows the first is not asked."""
    return any(said != before[name] for trace, before in bases for other in change(trace) for name, said in told(other))


COLUMNS = [f"{table}.{column}" for table, columns in TABLES.items() for column in columns]
INFORMATIVE = {
    "events.pid": "says which process wrote a row; ranks are told apart by their devices, whose process is in topology",
    "events.device": "likewise: reports take a rank's device from topology",
    "links.queue_bytes": "the queue in front of a link over time, where packets were followed, for queries",
    "events.graph_captured": "says that a row was read while a CUDA graph was captured, for queries",
    "events.graph_replay": "names a graph's replay as the source does, for queries",
    "events.tokens": "says how many tokens a call served, for queries",
    "edges.kind": "says of what nature a dependency is; a replay follows all alike",
    "communicators.color": "what MPI_Comm_split or ncclCommSplit was given; the members say what came of it",
    "links.dst": "where a simulated link leads, for queries; the bins that are drawn are of operations, which lead nowhere",
    "links.bin_s": "how wide a bin is, for queries; courses are drawn in bins of their own width",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_a_trace_is_noticed(name: str, bases: list[Base]) -> None:
    table, column = name.split(".")
    assert is_noticed(bases, lambda trace: changed(trace, table, column)) is (name not in INFORMATIVE)


META_INFORMATIVE = {
    "records": "how many records were read, for Traces put together of several; the ledger counts them by outcome",
    "dump_versions": "versions of the Flight Recorder's dumps, for the reader's own tests of them",
    "profiler_versions": "versions of the plug-in's recordings, likewise",
    "timeout_s": "the watchdog's time limit, as dumps tell it",
    "tables_as": "says that the tables of an export are CSV",
    "redacted": "says that names were replaced",
}


def other_meta(trace: Trace, name: str) -> list[Trace]:
    """Return the Trace with another value of a field of its meta."""
    values = {str: "other", list: ["other"], int: 7, bool: True, float: 7.0, dict: {"faults": ["rank 3 slow 4x"]}}
    return [replace(trace, meta={**trace.meta, name: values[META[name][0]]})]


@pytest.mark.parametrize("name", sorted(META))
def test_a_field_of_the_meta_is_noticed(name: str, bases: list[Base]) -> None:
    assert is_noticed(bases, lambda trace: other_meta(trace, name)) is (name not in META_INFORMATIVE)


@pytest.mark.parametrize("kind", sorted(MADE))
def test_no_reader_notes_what_is_not_known(kind: str, tmp_path: Path) -> None:
    trace = read([str(path) for path in put(tmp_path, MADE[kind](tmp_path))])
    assert set(trace.meta) <= set(META)
    assert Trace.open(trace.save(tmp_path / "saved")).meta == {**trace.meta}


def test_what_was_put_together_is_opened_as_it_was(tmp_path: Path) -> None:
    """Of recordings that count no records, none is known: that is nothing lost."""
    paths = []
    for kind in ("kineto", "network"):
        (tmp_path / kind).mkdir()
        paths += put(tmp_path / kind, MADE[kind](tmp_path / kind))
    trace = read([str(path) for path in paths])
    opened = Trace.open(trace.save(tmp_path / "saved"))
    assert trace.meta["records"] is None
    assert opened.meta == {**trace.meta}
    assert opened.table("ledger").equals(trace.table("ledger"))
