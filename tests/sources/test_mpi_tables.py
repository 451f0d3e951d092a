"""Tables of OSU, IMB, UCC and perftest: operations, ranks, sizes in one convention, further columns, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringwright.accuracy.measured_calls import measured_folder
from ringwright.analysis.summary import summarise
from ringwright.costs import open_mpi
from ringwright.formats.sources import read
from ringwright.formats.sources.tables.launch_line import launched
from ringwright.formats.sources.tables.nccl_tests import read_tables
from ringwright.ground.errors import InputError
from shared_data import needs_shared_data, real

OSU = """\
$ mpirun -np 4 -ppn 2 --mca coll_tuned_priority 90 ./osu_iallgather -f
# OSU MPI Non-blocking Allgather Latency Test v5.3.2
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
1                     216.50            140.95            135.61             44.29
1024                  220.50            142.95            137.61             43.29

# OSU MPI All-to-Allv Personalized Exchange Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations  P50 Tail Lat(us)  P99 Tail Lat(us)
4096                  467.38            460.43            474.05        1000            407.18            634.30
srun -n 4 osu_reduce_scatter_block
# OSU MPI Reduce_scatter_block Latency Test v7.5
# Size       Avg Latency(us)
16                       3.00
# OSU MPI Barrier Latency Test v7.1
# Avg Latency(us)
             12.33
# OSU MPI-CUDA Allreduce Latency Test v7.4
# Size       Avg Latency(us)   Validation
4                        5.0         Pass
8                        6.0         Fail
# OSU MPI Latency Test v5.8
# Size          Latency (us)
0                       1.10
# OSU MPI Bi-Directional Bandwidth Test v7.4
# Size      Bandwidth (MB/s)
1048576             40000.00
# OSU MPI Multiple Bandwidth / Message Rate Test v7.4
# [ pairs: 4 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1000000             20000.00          20000.00
# OSU MPI_Get latency Test v5.8
# Synchronization: MPI_Win_flush
# Size          Latency (us)
8                       0.30
"""
IMB = """\
#    Intel(R) MPI Benchmarks 2021.3, MPI-1 part
# Benchmarking Sendrecv
# #processes = 2
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]   Mbytes/sec
       524288           80        46.49        59.52        54.79     17616.61
      1048576           40       164.35       258.68       217.49      8107.16
# Benchmarking Alltoall
# #processes = 4
# ( 4 additional processes waiting in MPI_Barrier)
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1024         1000         5.00         7.00         6.00
# Benchmarking Reduce_scatter_block
# #processes = 4
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1024         1000         5.00         7.00         6.00
# Benchmarking Barrier
# #processes = 4
 #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1000         2.21         2.22         2.20
# Benchmarking Biband
# #processes = 4
       #bytes #repetitions   Mbytes/sec      Msg/sec
        40000         1000      8000.00       200000
"""
UCC = """\
Collective:             Allgather
Memory type:            cuda
Datatype:               float32

       Count        Size                Time, us                           Bandwidth, GB/s
                                 avg         min         max         avg         max         min
     1048576     4194304     2936.01     2900.00     3000.00       10.00       10.12        9.79
"""
PERFTEST = """\
                    RDMA_Write Bidirectional BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Link type       : IB
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]
 1048576    5000             0.00               40000.00 \t 0.186932
"""
SAMPLES = {"osu": OSU, "imb": IMB, "ucc": UCC, "perftest": PERFTEST}


def rows(folder: Path, text: str, name: str = "job.out") -> list[dict[str, Any]]:
    (folder / name).write_text(text)
    trace = read(folder / name)
    columns = ("kind", "op", "nranks", "nnodes", "size_bytes", "duration_s", "task", "value", "text")
    return trace.df.select(columns).to_dicts()


def told(every: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return of each measured row its operation, ranks, bytes and microseconds."""
    measured = [row for row in every if row["kind"] == "measurement"]
    return [(row["op"], row["nranks"], row["size_bytes"], round(row["duration_s"] * 1e6, 3)) for row in measured]


def test_osu_names_what_it_measured_and_the_launch_tells_the_ranks_of_one_table(tmp_path: Path) -> None:
    every = rows(tmp_path, OSU)
    assert told(every) == [
        ("all-gather", 4, 4, 135.61),
        ("all-gather", 4, 4096, 137.61),
        ("all-to-all", None, 4096, 467.38),
        ("reduce-scatter", 4, 16, 3.0),  # the whole is printed, unlike IMB's
        ("barrier", None, 0, 12.33),
        ("all-reduce", None, 4, 5.0),
        ("send-recv", 2, 0, 1.1),
        ("send-recv", 2, 1 << 20, 52.429),  # half of 40,000 MB/s each way
        ("send-recv", 8, 1_000_000, 200.0),  # a quarter of 20,000 MB/s a pair
        ("recv", 2, 8, 0.3),
    ]
    assert every[0]["nnodes"] == 2
    statistics = {
        row["task"]: row["value"] for row in every if row["kind"] == "statistic" and "All-to-Allv" in row["text"]
    }
    assert statistics["P99 Tail Lat(us)"] == 634.3
    assert statistics["Iterations"] == 1000


def test_osu_that_calls_its_result_wrong_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "a.out").write_text(OSU)
    summary = summarise(read(tmp_path / "a.out"))
    assert summary["answer"]["kind"] == "wrong"  # type: ignore[index]
    assert "8 B" in summary["answer"]["sentence"]  # type: ignore[index]
    assert [limit for limit in summary["limits"] if limit.startswith("nranks: ")]
    size = [claim["value"] for claim in summary["claims"] if claim["field"] == "size"]
    assert size == ["as printed: of one rank, the whole is not told"]


def test_imb_sizes_are_wholes_and_times_those_of_the_slowest(tmp_path: Path) -> None:
    assert told(rows(tmp_path, IMB)) == [
        ("send-recv", 2, 1 << 19, 59.52),
        ("send-recv", 2, 1 << 20, 258.68),
        ("all-to-all", 4, 4096, 7.0),
        ("reduce-scatter", 4, 4096, 7.0),
        ("barrier", 4, 0, 2.22),
        ("send-recv", 4, 40_000, 20.0),  # two pairs, two directions
    ]


def test_of_the_line_that_started_the_ranks_no_host_is_kept(tmp_path: Path) -> None:
    line = "mpirun -H login.example.org:2,n2:2 -x TOKEN=abc --mca coll_hcoll_enable 1 -mca coll ^ucc osu_allreduce"
    (tmp_path / "x").write_text(
        f"{line}\n# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n4   5.0\n"
    )
    claims = {claim["field"]: claim["value"] for claim in read(tmp_path / "x").table("claims").to_dicts()}
    assert claims["components"] == "coll_hcoll_enable 1, coll ^ucc"
    assert (claims["ranks"], claims["nodes"]) == ("4", "2")
    assert not [value for value in claims.values() if "example" in value or "abc" in value]


def test_ranks_that_only_wait_lie_on_nodes_that_are_not_told(tmp_path: Path) -> None:
    every = rows(tmp_path, f"mpirun -np 4 -ppn 2 IMB-MPI1\n{IMB}", "a.out")
    assert every[0]["nnodes"] is None  # two of the four take part
    _, mark, rest = IMB.partition("# Benchmarking Alltoall")
    whole = rows(tmp_path, f"mpirun -np 4 -ppn 2 IMB-MPI1\n{mark}{rest}", "b.out")
    assert whole[0]["nnodes"] == 2


def test_ucc_tells_its_ranks_by_bandwidths_alone(tmp_path: Path) -> None:
    assert told(rows(tmp_path, UCC)) == [("all-gather", 8, 8 << 22, 2936.01)]


def test_perftest_counts_both_directions_in_units_of_1024(tmp_path: Path) -> None:
    assert told(rows(tmp_path, PERFTEST)) == [("send", 2, 1 << 20, 50.0)]
    claims = {claim["field"]: claim["value"] for claim in read(tmp_path / "job.out").table("claims").to_dicts()}
    assert (claims["nic"], claims["link"]) == ("mlx5_0", "IB")


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_kind_is_known_by_its_content_and_says_whose_calls(kind: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(f"some line of a shell\n{SAMPLES[kind]}")
    summary = summarise(read(tmp_path / "x"))
    assert summary["source"] == kind
    library = {"osu": "MPI", "imb": "MPI", "ucc": "UCC", "perftest": "VERBS"}[kind]
    assert f"{library} version unknown" in summary["coverage"]
    assert not [each for each in summary["findings"] if "NCCL's model" in each["title"]]
    assert not [each for each in summary["findings"] if "ranks seen" in each["title"]]


def test_a_row_of_too_many_words_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(UCC + "  1  4  5.0  4.0  6.0  1.0  1.0  1.0  2  8  5.0\n")
    ledger = [row for row in read(tmp_path / "x").table("ledger").to_dicts() if row["outcome"] == "refused"]
    assert [row["example_line"] for row in ledger] == [8]


@pytest.mark.parametrize("text", [OSU.replace("Fail", "Pass"), IMB])
@pytest.mark.parametrize("is_counted", [False, True])
def test_blanks_may_be_tabs_and_lines_be_counted_behind(text: str, is_counted: bool, tmp_path: Path) -> None:
    lines = ["\t".join(line.split()) for line in text.splitlines()]
    pasted = "\n".join(f"{line}\t\t{number}" if is_counted and line else line for number, line in enumerate(lines, 1))
    assert told(rows(tmp_path, pasted)) == told(rows(tmp_path, text))


def test_a_number_behind_that_does_not_count_lines_is_no_line_number(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(IMB + "".join(f" {size} 80 1.0 2.0 {7 * size}\n" for size in (1, 2, 4)))
    refused = [row for row in read(tmp_path / "x").table("ledger").to_dicts() if row["outcome"] == "refused"]
    assert sum(row["lines"] for row in refused) == 3


def test_tables_of_two_tools_in_one_output_are_both_read_and_no_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(OSU.replace("Fail", "Pass") + IMB + PERFTEST)
    trace = read(tmp_path / "x")
    assert trace.df.filter(trace.df["kind"] == "measurement")["source"].to_list() == ["osu"] * 11 + ["imb"] * 6 + [
        "perftest"
    ]
    assert "refused" not in set(trace.table("ledger")["outcome"])


@pytest.mark.parametrize(
    ("text", "said"),
    [(OSU.split("\n1 ", maxsplit=1)[0], ("ranks", "4")), (PERFTEST.split(" #bytes", maxsplit=1)[0], ("nic", "mlx5_0"))],
)
def test_a_title_without_rows_tells_what_it_is_and_that_nothing_was_measured(
    text: str, said: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "x").write_text(text)
    trace = read(tmp_path / "x")
    assert trace.df.height == 0
    assert said in {(row["field"], row["value"]) for row in trace.table("claims").to_dicts()}
    assert summarise(trace)["answer"]["kind"] == "cannot-tell"
    assert trace.meta["losses"] == [f"{tmp_path}/x: no row of a benchmark: its table is cut, or the run had not begun"]


def test_column_names_alone_are_no_recording(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("# Size       Avg Latency(us)\n")
    with pytest.raises(InputError, match="no row"):
        read(tmp_path / "x")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mpirun -H n1:128,n2:128 -mca x 1 ./osu_allreduce", {"ranks": "256", "nodes": "2", "library": "open-mpi"}),
        ("mpirun -H n1,n2 ./osu_allreduce", {}),
        ("SINGULARITYENV_A=1 mpirun -n 4 -N 2 osu_bw", {"ranks": "4", "nodes": "2"}),
        ("mpirun -np 8 --map-by ppr:4:node a", {"ranks": "8", "nodes": "2"}),
        ("srun -N 2 -n 16 osu_bcast", {"ranks": "16", "nodes": "2"}),
        ("mpiexec.hydra -n 3 -genv I_MPI_DEBUG 5 IMB-MPI1", {"ranks": "3", "library": "intel-mpi"}),
        ("nothing of that kind -np 8", {}),
    ],
)
def test_what_the_line_says_that_started_the_ranks(line: str, said: dict[str, str]) -> None:
    told = launched(line) or {}
    assert {key: value for key, value in told.items() if key in ("ranks", "nodes", "library")} == said


def test_what_is_asked_of_nccl_names_the_kind_of_a_table_of_others(tmp_path: Path) -> None:
    said = "table of the Intel MPI Benchmarks; only times of NCCL's own calls"
    (tmp_path / "x.txt").write_text(IMB)
    with pytest.raises(InputError, match=said):
        read_tables(tmp_path / "x.txt")
    assert [said in each.reason for each in measured_folder([tmp_path / "x.txt"]).refused] == [True]


SPIKE = """\
$ mpirun -np 16 --mca btl self {} ./osu
# OSU MPI {} Latency Test v7.4
# Size       Avg Latency(us)
{}                     5.0
{}                   100.0
{}                     9.0
"""


@pytest.mark.parametrize(
    ("test", "line", "sizes", "told"),
    [
        ("Allreduce", "", (32, 64, 128), "change from segmented_ring to recursive_doubling at 64 B"),
        (
            "Allreduce",
            "--mca coll_hcoll_enable 1",
            (32, 64, 128),
            "unless what its line sets decides first (coll_hcoll_enable 1)",
        ),
        ("Non-blocking Allreduce", "", (32, 64, 128), "what the rules of open-mpi choose"),
    ],
)
def test_a_spike_stands_beside_what_open_mpis_rules_take(
    test: str, line: str, sizes: tuple[int, ...], told: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text(SPIKE.format(line, test, *sizes))
    detail = summarise(read(tmp_path / "x"))["findings"][0]["detail"]
    assert told in detail
    names = [open_mpi.select("all-reduce", 16, size).name for size in sizes]
    assert all(name in detail for name in names) == (not test.startswith("Non"))


# --------------------------------------------------------------------------------------------------- published questions
@needs_shared_data
@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("ucc981_hcoll.txt", "32 KiB takes 5.9 times what its neighbours suggest"),
        ("imb37.txt", "from 512 KiB to 1 MiB"),
    ],
)
def test_what_a_reporter_asked_is_the_first_finding(name: str, title: str) -> None:
    summary = summarise(read(real(f"field/{name}")))
    assert title in summary["findings"][0]["title"]
    assert summary["findings"][0]["severity"] == "warning"


@needs_shared_data
def test_the_rules_of_the_library_that_started_the_ranks_are_one_command_away() -> None:
    detail = summarise(read(real("field/ucc981_hcoll.txt")))["findings"][0]["detail"]
    assert "ringwright library open-mpi --collective all-reduce --ranks 512 --nodes 4" in detail


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "source", "count", "op"),
    [
        ("ompi13082.txt", "osu", 10, "all-reduce"),
        ("mpich7601_clean.txt", "osu", 1, "all-to-all"),
        ("ompi7735_iallgather.txt", "osu", 2, "all-gather"),
        ("imb37.txt", "imb", 10, "send-recv"),
        ("ompi3938_imb.txt", "imb", 4, "all-to-all"),
    ],
)
def test_published_tables_are_read_whole(name: str, source: str, count: int, op: str) -> None:
    trace = read(real(f"field/{name}"))
    measured = trace.df.filter(trace.df["kind"] == "measurement")
    assert (trace.meta["source"], measured.height, set(measured["op"])) == (source, count, {op})
    assert "refused" not in set(trace.table("ledger")["outcome"])
