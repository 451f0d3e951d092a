"""Tables looked up among many: which claims are a table's own, and which peer is the best, without asking all of all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from ringwright.analysis.benchmarks import BenchmarkTimes, gpu_model, same_gpu, tables
from ringwright.analysis.expected import cliffs, expected
from ringwright.analysis.peers import Peers
from ringwright.analysis.table_claims import TableClaims
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from work_done import calls_made

MIB = 1 << 20
GPUS = ("NVIDIA A100-SXM4-40GB", "A100", "NVIDIA A100-PCIE-40GB", "H100", "")


def drawn(draw: random.Random) -> BenchmarkTimes:
    sizes = draw.sample([MIB << power for power in range(10)], draw.randint(1, 6))
    op, ranks, nodes = draw.choice(("all-reduce", "all-gather")), draw.choice((8, 16, None)), draw.choice((1, 2, None))
    times = {size: size / draw.choice((1e9, 3e9, 10e9)) for size in sizes}
    return BenchmarkTimes("t", op, ranks, nodes, "benchmark", "bench", times, gpu=draw.choice(GPUS))


def by_comparing_all(
    table: BenchmarkTimes, peers: Iterable[BenchmarkTimes], least: int
) -> tuple[float, int, int] | None:
    best: tuple[float, int, int] | None = None
    for order, peer in enumerate(peers):
        nodes_agree = None in (table.nnodes, peer.nnodes) or table.nnodes == peer.nnodes
        same = table.op == peer.op and table.nranks == peer.nranks and table.nranks is not None
        if peer is table or not (same and nodes_agree and same_gpu(table.gpu, peer.gpu)):
            continue
        size = next((size for size in reversed(table.sizes) if size >= least and peer.at(size) is not None), None)
        if size is not None:
            factor = table.steady_s(size) / (peer.at(size) or float("inf"))
            best = (factor, size, order) if best is None or factor > best[0] else best
    return best


@pytest.mark.parametrize("seed", range(20))
def test_the_best_peer_is_the_one_that_comparing_all_gives(seed: int) -> None:
    draw = random.Random(seed)
    every = [drawn(draw) for _ in range(40)]
    peers = Peers(every)
    for table in every:
        best = peers.best(table, 4 * MIB)
        told = best and (best.factor, best.size_bytes, best.order)
        assert told == by_comparing_all(table, every, 4 * MIB)


def measured(number: int, times_s: Callable[[int], dict[int, float]]) -> Trace:
    """Return a Trace of so many tables of one machine."""
    base = {
        "kind": "measurement",
        "op": "all-reduce",
        "nranks": 8,
        "nnodes": 1,
        "multiplicity": 1,
        "task": "out-of-place",
    }
    events = [
        base | {"text": f"a file, table {at}", "size_bytes": size, "duration_s": time_s}
        for at in range(number)
        for size, time_s in times_s(at).items()
    ]
    claims = [
        {"field": "gpu", "value": "A100-SXM4", "source": f"a file, table {at}", "ground": "read"}
        for at in range(number)
    ]
    return Trace.of({"events": rows("events", events), "claims": rows("claims", claims)}, {"source": "bench"})


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    count, asked = [0], getattr(owner, name)

    def counting(*given: Any) -> Any:
        count[0] += 1
        return asked(*given)

    monkeypatch.setattr(owner, name, counting)
    return count


def test_twice_the_tables_ask_for_twice_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    count, needed = counted(monkeypatch, BenchmarkTimes, "at"), []
    for number in (100, 200):
        count[0] = 0
        trace = measured(number, lambda at: {32 * MIB: 0.004 + at * 1e-6, 64 * MIB: 0.008})
        assert sum("cluster" in item["title"] for item in expected(trace)) == number
        needed.append(count[0])
    assert needed[1] < 2.2 * needed[0]


def test_tables_of_sizes_all_different_end_in_words_not_in_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peers.__init__, "__kwdefaults__", {"most": 1000})
    count = counted(monkeypatch, BenchmarkTimes, "at")
    trace = measured(100, lambda at: {(32 << 20) + at: 0.004, (64 << 20) + at: 0.008})
    (told,) = (item for item in expected(trace) if "not every table" in item["title"])
    assert "of 100 tables" in told["detail"]
    assert count[0] < 2000


def test_the_times_of_a_table_are_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a table of many sizes would sort them for each of them."""
    sorts = [0]
    times = {size * MIB: size * 1e-3 for size in range(1, 400)}

    class Counting(dict[int, float]):
        def keys(self) -> Any:
            sorts[0] += 1
            return super().keys()

    table = BenchmarkTimes("t", "all-reduce", 8, 1, "benchmark", "bench", Counting(times))
    assert [table.at(size) for size in times] == list(times.values())
    assert sorts[0] == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_table_has_the_claims_of_its_name_and_of_the_first_words_of_it(seed: int) -> None:
    draw = random.Random(seed)

    def name() -> str:
        return " ".join(draw.choice(("a", "b", "ab", "")) for _ in range(draw.randint(1, 4)))

    said = [(name(), draw.choice(("gpu", "release", "other")), draw.choice("xyz")) for _ in range(30)]
    claims = [{"source": source, "field": field, "value": value, "ground": "read"} for source, field, value in said]
    held = TableClaims(Trace.of({"claims": rows("claims", claims)}), ("gpu", "release"))
    for table in [name() for _ in range(60)]:
        for field in ("gpu", "release", "other"):
            own = [v for s, f, v in said if f == field and (table == s or table.startswith(f"{s} ")) and f != "other"]
            told = held.table(table, field)
            assert (told and (told.value, told.is_disputed)) == ((own[0], len(set(own)) > 1) if own else None)
    every = [value for _, field, value in said if field == "gpu"]
    told = held.job("gpu")
    assert (told and (told.value, told.is_disputed)) == ((every[0], len(set(every)) > 1) if every else None)


def test_a_table_is_not_held_against_the_claims_of_all_others() -> None:
    needed = []
    for number in (100, 200):
        trace = measured(number, lambda _: {MIB: 1e-3, 2 * MIB: 2e-3})
        needed.append(calls_made(partial(tables, trace)))
    assert needed[1] < 2.2 * needed[0]


def test_a_gpu_whose_name_is_all_digits_is_read_once() -> None:
    """A search from each digit for where they end would take minutes."""
    assert gpu_model(f"NVIDIA A100-SXM4-{'9' * 200_000}x") == f"A100-SXM4-{'9' * 200_000}X"
    assert gpu_model("NVIDIA A100-SXM4-40GB") == gpu_model("A100-SXM4 40 GB") == "A100-SXM4"


def test_a_time_of_nothing_is_not_divided_by() -> None:
    trace = measured(2, lambda at: {4: 1e-10, (16 << at) * MIB: 0.004, 64 * MIB: 0.016})
    assert expected(trace)
    assert isinstance(cliffs(trace), list)
    assert all(4 not in table.times_s for table in tables(trace))
