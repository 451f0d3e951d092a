"""Tables of TraceLens: two of a real job's rank, and a report whose tables must agree with one another and with the trace."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace
from shared_data import data_folder, needs_shared_data

FILES = Path(__file__).parent / "tracelens"
REPORT = sorted(FILES.glob("nccl_*.csv"))
SIZES = ["op", "rank", "size_bytes", "sent_bytes", "received_bytes", "datatype", "nranks"]


def _report(folder: Path, *names: str) -> Trace:
    """Read some tables of the report, as they lie in one folder."""
    folder.mkdir()
    return read([str(shutil.copy(FILES / f"nccl_{name}.csv", folder)) for name in names])


def _totals(trace: Trace) -> dict[tuple[str, int], tuple[int, int, float]]:
    """Return calls, bytes and seconds by operation and rank."""
    total = pl.col("multiplicity")
    sums = [total.sum(), (total * pl.col("size_bytes")).sum(), (total * pl.col("duration_s")).sum().round(9)]
    rows = trace.df.group_by("op", "rank").agg(n=sums[0], size=sums[1], took=sums[2]).rows()
    return {(op, rank): (n, size, took) for op, rank, n, size, took in rows}


@pytest.mark.parametrize("number", [1, 2])
def test_a_real_jobs_rank(number: int) -> None:
    """Elements are written 27264000 or 27264000.0; a mean times its count is the sum that stands beside it."""
    path = FILES / f"coll_analysis.trace{number}.csv"
    seconds = pl.read_csv(path)["dur_sum"].sum() * 1e-6
    trace = read(str(path))
    seen = summarise(trace)
    assert (seen["ranks_seen"], seen["ranks_expected"]) == (1, 8)
    assert {row["op"]: row["count"] for row in seen["operations"]} == {"all-gather": 1205, "reduce-scatter": 405}
    gathered = 480 * 218112000 + 120 * 218112264 + 480 * 19672320 + 120 * 19672328 + 5 * 1158845960
    scattered = 160 * 218112000 + 40 * 218112264 + 160 * 19672320 + 40 * 19672328 + 5 * 1158845960
    totals = _totals(trace)
    assert {op: size for (op, _), (_, size, _) in totals.items()} == {
        "all-gather": 2 * gathered,
        "reduce-scatter": 2 * scattered,
    }
    assert sum(took for _, _, took in totals.values()) == pytest.approx(seconds, rel=1e-6)
    assert trace.table("communicators")["members"].to_list() == [list(range(8))]
    assert trace.table("ledger")["outcome"].unique().to_list() == ["understood"]


def test_calls_of_two_ranks(tmp_path: Path) -> None:
    trace = _report(tmp_path / "r", "long")
    assert {key: value[0] for key, value in _totals(trace).items()} == {
        **{("all-reduce", rank): 15 for rank in (0, 1)},
        **{("broadcast", rank): 6 for rank in (0, 1)},
        **{("all-to-all", rank): 3 for rank in (0, 1)},
        ("send", 0): 2,
        ("recv", 0): 1,
        ("send", 1): 1,
        ("recv", 1): 2,
    }
    first = trace.df.filter(op="all-to-all", rank=0).row(0, named=True)
    assert (first["sent_bytes"], first["received_bytes"], first["sequence"]) == (2 * 716800, 2 * 331776, 0)
    assert (trace.df["start_s"].min(), trace.df["duration_s"].null_count()) == (0.0, 0)


@needs_shared_data
def test_calls_are_those_of_the_trace_it_was_made_from(tmp_path: Path) -> None:
    long = _report(tmp_path / "r", "long").df.filter(
        pl.col("rank") == 0, pl.col("op").is_in(["all-reduce", "broadcast"])
    )
    own = long.sort("start_s")
    source = read(str(data_folder() / "real" / "kineto" / "hta_nccl_data.json.gz")).df
    source = source.filter(kind="collective").sort("start_s")
    columns = [*SIZES, "duration_s"]
    assert own.select(columns).equals(source.select(columns))
    apart = (own["start_s"] - own["start_s"][0]) - (source["start_s"] - source["start_s"][0])
    assert apart.abs().max() < 1e-6


def test_tables_of_one_report_agree(tmp_path: Path) -> None:
    """The wide tables hold the same calls as the long one, the summary of ranks as many and as long."""
    long = _report(tmp_path / "long", "long")
    wide = _report(tmp_path / "wide", "implicit_sync", "all2allv")
    ops = ["all-reduce", "all-to-all"]
    columns = [*SIZES, "duration_s"]
    frames = [each.df.filter(pl.col("op").is_in(ops)).select(columns).sort(columns) for each in (long, wide)]
    assert frames[0].equals(frames[1])
    summary = _totals(_report(tmp_path / "summary", "summary_long"))
    assert {key: value[:2] for key, value in summary.items()} == {k: v[:2] for k, v in _totals(long).items()}
    assert all(summary[key][2] == pytest.approx(value[2], rel=1e-9) for key, value in _totals(long).items())


def test_a_call_counts_once_where_several_tables_tell_it(tmp_path: Path) -> None:
    everything = read([str(path) for path in REPORT])
    assert _totals(everything) == _totals(_report(tmp_path / "r", "long"))
    claims = dict(everything.table("claims").select("field", "value").rows())
    assert claims["waiting of rank 1"] == "685.0 us, last in 11"
    assert claims["fastest rank, allreduce of 7.816314697265625 MB"].startswith("3449.37 us")
    # without it, what the summary of ranks holds alone is added to what the wide tables hold
    assert (
        _totals(_report(tmp_path / "o", "implicit_sync", "all2allv", "summary_long")).keys()
        == _totals(everything).keys()
    )


def test_the_summary_alone_is_of_the_fastest_rank(tmp_path: Path) -> None:
    trace = _report(tmp_path / "r", "summary_implicit_sync")
    assert trace.df["rank"].null_count() == len(trace.df) == 5
    assert trace.df["multiplicity"].sum() == 15
    assert trace.df["size_bytes"].to_list()[0] == 4 * 2049000


def test_tables_of_single_traces_are_other_ranks(tmp_path: Path) -> None:
    for rank in (3, 5):
        (tmp_path / f"rank{rank}_csvs").mkdir()
        shutil.copy(FILES / "coll_analysis.trace1.csv", tmp_path / f"rank{rank}_csvs" / "coll_analysis.csv")
    paths = [str(path) for path in sorted(tmp_path.glob("*/*.csv"))]
    trace = read(paths)
    assert trace.df["rank"].unique().sort().to_list() == [3, 5]
    same = [shutil.copy(FILES / "coll_analysis.trace1.csv", tmp_path / name) for name in ("a.csv", "b.csv")]
    trace = read([str(path) for path in same])
    assert trace.df["rank"].unique().sort().to_list() == [0, 1]
    assert "assumed" in trace.table("claims")["ground"].to_list()


def test_what_contradicts_itself_has_no_time(tmp_path: Path) -> None:
    lines = (FILES / "coll_analysis.trace1.csv").read_text().splitlines()
    path = tmp_path / "coll_analysis.csv"
    broken = [
        lines[1].replace(",2222.90214375,", ",222.290214375,"),  # the mean is not the sum over the count
        lines[2].replace(",7475.976,", ",3000.0,"),  # the longest is shorter than the mean
        lines[3].replace(",160", ",nan"),
        lines[4].replace("BFloat16", "Float77").replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 1, ..., 7]"),
        lines[5] + ",7",
        "",
    ]
    path.write_text("\n".join([lines[0], *broken]))
    trace = read(str(path))
    assert trace.df["duration_s"].null_count() == 2
    assert trace.table("ledger").filter(outcome="refused")["lines"].sum() == 4
    # of a type whose width is not known, megabytes as printed
    assert trace.df.filter(multiplicity=480, size_bytes=round(37.52197265625 * (1 << 20))).height == 1


def test_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "nccl_long.csv"
    path.write_text((FILES / "nccl_long.csv").read_text().splitlines()[0] + "\n")
    with pytest.raises(InputError, match="no collective"):
        read(str(path))
    with pytest.raises(InputError, match="no collective"):
        read(str(FILES / "nccl_straggler.csv"))
