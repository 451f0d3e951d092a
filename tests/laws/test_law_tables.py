"""Laws of benchmark tables: each broken on purpose, and healthy tables of every convention that pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringwright.analysis.bandwidth import bandwidth
from ringwright.analysis.summary import summarise
from ringwright.bounds.laws import LAWS, reason
from ringwright.bounds.laws.tables import Printed, Side, factor_of, judge, rounded_from
from ringwright.calls.calibrate import calibrate
from ringwright.formats.sources.bench import read_bench
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.tables.nccl_columns import header, place
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real
from written import sources

MIB = 1 << 20
HEADER = """\
# Using devices
#   Rank  0 Pid   2574 on      a device  0 [0x0f] NVIDIA A100-SXM4-40GB
#   Rank  1 Pid   2574 on      a device  1 [0x47] NVIDIA A100-SXM4-40GB
#
#                                                       out-of-place                       in-place
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
GOOD = "   268435456      67108864     float     sum   2000.0  134.22  134.22  0e+00   2000.0  134.22  134.22  0e+00\n"
NEXT = "   536870912     134217728     float     sum   4000.0  134.22  134.22  0e+00   4000.0  134.22  134.22  0e+00\n"
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 134.22\n"
EXCHANGE = """\
alltoall result
#
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   268435456       1048576     float           520935    0.52    0.51  0e+00   519562    0.52    0.51  1e+00
"""


def read(folder: Path, text: str, name: str = "run.txt") -> Trace:
    return read_bench(sources(folder, {name: text.encode()}))


def laws(trace: Trace) -> list[tuple[str, int]]:
    return [(row["law"], row["refused"]) for row in summarise(trace)["laws"]]


@pytest.mark.parametrize(
    ("law", "old", "new"),
    [
        ("algbw", "4000.0  134.22  134.22  0e+00   4000.0", "4000.0  154.22  154.22  0e+00   4000.0"),
        ("algbw", "4000.0  134.22  134.22  0e+00\n", "2000.0  134.22  134.22  0e+00\n"),  # in place
        ("busbw", "4000.0  134.22  134.22  0e+00   4000.0", "4000.0  134.22  251.66  0e+00   4000.0"),
        ("busbw", "134.22  134.22  0e+00\n", "134.22   13.42  0e+00\n"),
        ("time", "4000.0  134.22  134.22  0e+00   4000.0", "   N/A     N/A     N/A    N/A      N/A"),
        ("columns", "float     sum   4000.0  134.22", "float     sum   4000.0  wrong!"),
    ],
)
def test_a_row_that_breaks_a_law_is_refused_with_its_line(tmp_path: Path, law: str, old: str, new: str) -> None:
    assert old in NEXT
    trace = read(tmp_path, "# all_reduce_perf\n" + HEADER + GOOD + NEXT.replace(old, new))
    assert {entry["size_bytes"] for entry in bandwidth(trace)} == {256 * MIB}
    (row,) = [row for row in trace.table("ledger").to_dicts() if row["outcome"] == "refused"]
    assert (row["reason"], row["lines"], row["example_line"]) == (reason(law), 1, 10)
    summary = summarise(trace)
    assert [(entry["law"], entry["refused"]) for entry in summary["laws"]] == [(law, 1)]
    assert "1 understood, 0 repaired, 1 refused" in summary["coverage"]
    assert f"law {law}: 1 refused" in [finding["title"] for finding in summary["findings"]]


def test_a_calibration_names_the_rows_that_it_was_not_told(tmp_path: Path) -> None:
    rows = [
        f"{size} {size // 4} float sum {us:.1f} {size / us / 1e3:.2f} {size / us / 1e3:.2f} 0 {us:.1f} {size / us / 1e3:.2f} "
        f"{size / us / 1e3:.2f} 0"
        for size, us in ((1 << power, 20 + (1 << power) / 1e5) for power in range(10, 31))
    ]
    text = "# all_reduce_perf\n# nccl-tests version 2.17 NCCL version 2.18.5\n" + HEADER + "\n".join(rows) + "\n"
    (tmp_path / "good.txt").write_text(text)
    (tmp_path / "bad.txt").write_text(text + NEXT.replace("134.22  134.22", "134.22  251.66"))
    good, bad = (calibrate([str(tmp_path / name)], "dgx-a100:1x2")[0] for name in ("good.txt", "bad.txt"))
    assert "refused" not in good.source
    assert "; refused 1, first bad.txt:" in bad.source
    assert "law busbw" in bad.source


def test_every_law_says_what_must_hold() -> None:
    assert all(name == law.name and len(law.statement.split()) > 5 for name, law in LAWS.items())
    with pytest.raises(KeyError):
        reason("a law that nobody wrote")


@needs_shared_data
def test_an_empty_column_shifts_nothing() -> None:
    trace = read_bench(find([str(real("regressions/nccl-tests-78-alltoall.txt"))]))
    found = {(e["size_bytes"], e["task"]): (e["time_us"], e["busbw_gbs"]) for e in bandwidth(trace)}
    assert found[512 * MIB, "out-of-place"] == (1_041_974.0, pytest.approx(0.51))
    assert found[256 * MIB, "in-place"] == (519_562.0, pytest.approx(0.51))
    assert laws(trace) == []


@pytest.mark.parametrize("squeeze", [False, True])
def test_columns_by_the_ends_of_the_header(squeeze: bool) -> None:
    lines = EXCHANGE.splitlines()
    row = " ".join(lines[4].split()) if squeeze else lines[4]  # pasted tables lose their blanks
    cells = place(row, header(lines[2]))
    assert cells == [
        "268435456",
        "1048576",
        "float",
        "",
        "520935",
        "0.52",
        "0.51",
        "0e+00",
        "519562",
        "0.52",
        "0.51",
        "1e+00",
    ]
    # a line that ends inside a time, or before the rates that prove it
    assert place(lines[4][:54], header(lines[2])) is None
    assert place(lines[4][:62], header(lines[2])) is None
    assert place(lines[4][:70], header(lines[2])) == [*cells[:7], *[""] * 5]  # the out-of-place run is whole
    assert place("12 little words of text here", header(lines[2])) is None


@pytest.mark.parametrize("between", ["", "some words\n"])
def test_two_tables_never_merge(tmp_path: Path, between: str) -> None:
    trace = read(tmp_path, "# all_reduce_perf\n" + HEADER + GOOD + END + between + EXCHANGE)
    found = [(e["op"], e["time_us"], e["nranks"]) for e in bandwidth(trace) if e["task"] == "out-of-place"]
    assert sorted(found, key=str) == [("all-reduce", 2000.0, 2), ("all-to-all", 520935.0, None)]
    # one operation twice in one file, and one name in two folders: four tables, no medians over them
    slow = GOOD.replace("2000.0  134.22  134.22", "4000.0   67.11   67.11")
    twice = "# all_reduce_perf\n" + HEADER + GOOD + END + "# all_reduce_perf\n" + HEADER + slow + END
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "all.txt").write_text(twice)
    both = bandwidth(read_bench(find([str(tmp_path / "one"), str(tmp_path / "two")])))
    assert sorted(e["time_us"] for e in both if e["task"] == "in-place") == [2000.0, 2000.0, 4000.0, 4000.0]
    assert len({e["table"] for e in both}) == 4


def test_what_a_table_says_stays_with_it(tmp_path: Path) -> None:
    """Release, ranks and operation of one run are not those of the next one."""
    first = "# all_reduce_perf\nNCCL version 2.18.5+cuda12.2\n" + HEADER + GOOD + END
    bare = "\n".join(HEADER.splitlines()[-2:]) + "\n" + NEXT.replace("134.22  134.22", "134.22  117.44")
    trace = read(tmp_path, first + bare)
    claims = [(c["field"], c["source"]) for c in trace.table("claims").to_dicts()]
    assert claims.count(("release", "run.txt")) == 1
    assert {(e["op"], e["nranks"]) for e in bandwidth(trace)} == {("all-reduce", 2), ("unknown", None)}


def test_types_and_reductions_under_one_header_are_apart(tmp_path: Path) -> None:
    slow = GOOD.replace("float     sum   2000.0  134.22  134.22", "float    prod   4000.0   67.11   67.11")
    trace = read(tmp_path, "# all_reduce_perf\n" + HEADER + GOOD + slow)
    assert sorted(e["time_us"] for e in bandwidth(trace) if e["task"] == "out-of-place") == [2000.0, 4000.0]


def printed(op: str, p: int, size: int, time_us: float, share: float = 1.0) -> Side:
    """Return a run as nccl-tests prints it."""
    algorithm = size * share / time_us / 1e3
    bus = algorithm * (1.0 if share < 1 else factor_of(op, p) or 0.0)
    digits = max(0, 2 - max(0, len(str(int(time_us))) - 4))
    return Side(f"{time_us:.{digits}f}", f"{algorithm:.2f}", f"{bus:.2f}")


@given(
    op=st.sampled_from(
        ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "gather", "send-recv"]
    ),
    p=st.integers(1, 4096),
    told=st.booleans(),
    rows=st.lists(st.tuples(st.integers(0, 1 << 36), st.floats(0.1, 1e8)), min_size=1, max_size=8),
)
@example(op="all-gather", p=12, told=False, rows=[(186, 0.375), (3573, 1.0)])  # digits of 2 % tell a factor of 0.90
def test_healthy_tables_pass(op: str, p: int, told: bool, rows: list[tuple[int, float]]) -> None:
    made = [Printed(size, (printed(op, p, size, time),)) for size, time in rows]
    assert judge(op, p if told else 0, made).broken == {}


@given(
    op=st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all"]),
    p=st.integers(2, 512),
    told=st.booleans(),
    at=st.integers(0, 4),
    wrong=st.sampled_from([0.1, 0.5, 0.8, 1.25, 2.0, 8.0]),
    column=st.sampled_from(["time_us", "algbw_gbs", "busbw_gbs"]),
)
def test_one_wrong_figure_is_found(op: str, p: int, told: bool, at: int, wrong: float, column: str) -> None:
    sizes = [(64 << 20) << n for n in range(5)]
    sides = [printed(op, p, size, size / 1e5) for size in sizes]
    fields: dict[str, Any] = {name: getattr(sides[at], name) for name in ("time_us", "algbw_gbs", "busbw_gbs")}
    sides[at] = Side(**fields | {column: f"{float(fields[column]) * wrong:.2f}"})
    found = judge(op, p if told else 0, [Printed(size, (side,)) for size, side in zip(sizes, sides, strict=True)])
    assert set(found.broken) == {at}
    assert found.broken[at][0] == ("busbw" if column == "busbw_gbs" else "algbw")


@pytest.mark.parametrize("op", ["all-gather", "reduce-scatter"])
@pytest.mark.parametrize("told", [0, 8])
def test_the_convention_of_the_first_releases_is_one_of_the_table(op: str, told: int) -> None:
    """They count what a rank receives from others, (p-1)/p of the size, and print it twice."""
    sizes = [MIB << n for n in range(10)]
    made = [Printed(size, (printed(op, 8, size, size / 1e5, share=7 / 8),)) for size in sizes]
    assert judge(op, told, made).broken == {}
    mixed = [*made[:9], Printed(sizes[9], (printed(op, 8, sizes[9], 100.0),))]
    assert set(judge(op, told, mixed).broken) == {9}


def test_a_list_of_ranks_that_no_row_agrees_with_is_not_believed(tmp_path: Path) -> None:
    """Devices that were cut from the list, or communicators that were split: rows keep time and algbw, busbw is unknown."""
    rows = "".join(line.replace("134.22  134.22", "134.22  251.66") for line in (GOOD, NEXT))
    trace = read(tmp_path, "# all_reduce_perf\n" + HEADER + rows)
    assert {(e["algbw_gbs"], e["busbw_gbs"], e["nranks"]) for e in bandwidth(trace)} == {(134.2177, None, None)}
    assert laws(trace) == [("ranks", 1)]


def test_no_row_is_believed_where_all_that_tell_it_are_of_another_operation() -> None:
    """An all-reduce's figures under the name of an all-gather: small rows print too few digits to show it."""
    sizes = [1 << n for n in range(3, 31)]
    made = [Printed(size, (printed("all-reduce", 8, size, 10 + size / 3e5),)) for size in sizes]
    assert judge("all-reduce", 8, made).broken == {}
    found = judge("all-gather", 8, made)
    assert set(found.broken) == set(range(len(sizes)))
    assert {law for law, _ in found.broken.values()} == {"busbw"}


def test_an_operation_that_only_a_name_tells_gives_way_to_the_rows(tmp_path: Path) -> None:
    bare = "\n".join(HEADER.splitlines()[-2:]) + "\n" + GOOD.replace("134.22  134.22", "134.22  117.44")
    trace = read(tmp_path, bare, "all_reduce.txt")
    assert {e["op"] for e in bandwidth(trace)} == {"unknown"}
    assert laws(trace) == [("busbw", 1)]


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("0.00", (0.0, 0.01)),
        ("0.5", (0.4, 0.6)),
        ("520935", (520934, 520936)),
        ("1e2", (0.0, 200.0)),
        ("-1", None),
        ("nan", None),
        ("N/A", None),
        ("", None),
        ("1e999999999999", None),
    ],
)
def test_what_a_printed_number_was_rounded_from(text: str, limits: tuple[float, float] | None) -> None:
    assert rounded_from(text) == (limits if limits is None else pytest.approx(limits, rel=2e-3, abs=1e-9))


@pytest.mark.parametrize(
    "hostile",
    [
        HEADER.splitlines()[5] + "\n" + "9" * 400 + " 1 float sum 1 1 1 0 1 1 1 0\n",
        HEADER.splitlines()[5] + "\n1 1 float sum 1e999 1 1 0 1 1 1 0\n",
        "# size count time" + " error" * 500 + "\n1 1 1\n",
        HEADER.splitlines()[5] + "\n1 1 float sum 0.00 0.00 0.00 0 0.00 0.00 0.00 0\n",
    ],
)
def test_hostile_rows_are_refused_not_used(tmp_path: Path, hostile: str) -> None:
    good = "\n".join(HEADER.splitlines()[-2:]) + "\n" + GOOD
    trace = read(tmp_path, "# all_reduce_perf\n" + good + END + hostile)
    assert {e["size_bytes"] for e in bandwidth(trace)} == {256 * MIB}


@needs_shared_data
def test_healthy_real_tables_keep_every_row() -> None:
    """Of all rows of the shared tables one breaks a law: 8 KiB in 83.41 us is not 0.1012 GB/s, as a baseline says."""
    folder = real("real/nccl-tests")
    refused = [
        row for row in read_bench(find([str(folder)])).table("ledger").to_dicts() if "law " in (row["reason"] or "")
    ]
    assert [(row["reason"], row["lines"]) for row in refused] == [(reason("algbw"), 1)]
    assert "0.1012 GB/s printed, 0.09821 GB/s by 8192 B in 83.41 us" in refused[0]["example"]


ROUNDED = {"whole": "{:.0f}", "padded": "{:.4f}"}


@pytest.mark.parametrize("shape", ROUNDED)
@pytest.mark.parametrize("size", [1 << 30, 1 << 33])
def test_three_digits_do_not_contradict_the_ranks(shape: str, size: int) -> None:
    """475 and 240 GB/s of 64 ranks: their ratio is 1.979 for 1.969, half a percent, which three digits do not tell."""
    rows = [
        Printed(size, (Side(f"{size / rate / 1e3:.0f}", ROUNDED[shape].format(rate), ROUNDED[shape].format(bus)),))
        for rate, bus in ((240, 475), (240, 474), (241, 476), (239, 473))
    ]
    assert judge("all-reduce", 64, rows).ranks_refused == ""
    assert judge("all-reduce", 8, rows).ranks_refused  # 1.75 it is not


def test_digits_that_are_printed_are_believed() -> None:
    rows = [
        Printed(size, (Side(f"{size / 241.27 / 1e3:.2f}", "241.27", f"{241.27 * 1.9789:.2f}"),))
        for size in (1 << 30, 1 << 31, 1 << 32)
    ]
    assert "1.979" in judge("all-reduce", 64, rows).ranks_refused
    assert judge("all-reduce", 95, rows).ranks_refused == ""
