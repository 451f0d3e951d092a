"""Tables of nccl-tests in all the shapes in which they are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.formats.sources.tables.nccl_tests import read_tables, text_tables
from ringwright.formats.sources.tables.nccl_tests_table import NcclTestsTable, SizeRow
from ringwright.ground.errors import InputError
from shared_data import needs_shared_data, real

NEW = """\
# nccl-tests version 2.17.9 nccl-headers=22903 nccl-library=22903
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid   2574 on a device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   2575 on b device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    20.00    0.05    0.05       0    10.00    0.10    0.10       0
host:3442:3442 [0] NCCL INFO Launch mode Parallel
  1073741824     268435456     float     sum      -1   108874    9.86    9.86       0   108675    9.88    9.88     N/A
# Out of bounds values : 0 OK
"""
OLD = """\
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
          32             1   float    35.03    0.00    0.00    N/A    34.15    0.00    0.00    N/A
"""
# op, ranks, nodes, rows, first size, last out-of-place us
REAL = {
    "aks_rdma_infiniband_expected_output.txt": ("all-reduce", 0, 0, 16, 8, 86026.0),
    "alcf_polaris__nccl_2_18__n128.g4.2024-04-29-18-31-53__all_gather_output.dat.5.txt": (
        "all-gather",
        512,
        128,
        29,
        0,
        32943.0,
    ),
    "alcf_polaris__nccl_2_18__n128.g4.2024-04-29-18-31-53__all_reduce_output.dat.1.txt": (
        "all-reduce",
        512,
        128,
        29,
        4,
        461684.0,
    ),
    "alcf_polaris__nccl_2_18__n128.g4.2024-04-29-18-31-53__alltoall_output.dat.1.txt": (
        "all-to-all",
        512,
        128,
        29,
        0,
        890940.0,
    ),
    "alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_gather_output.dat.5.txt": (
        "all-gather",
        32,
        8,
        29,
        0,
        None,
    ),
    "alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_reduce_output.dat.1.txt": (
        "all-reduce",
        32,
        8,
        29,
        4,
        347600.0,
    ),
    "alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_reduce_output.dat.3.txt": (
        "all-reduce",
        32,
        8,
        29,
        4,
        57654.0,
    ),
    "alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_reduce_output.dat.5.txt": (
        "all-reduce",
        32,
        8,
        29,
        4,
        56948.0,
    ),
    "alcf_sophia__n2.g8__2024-10-15-11-28-16__all_gather_output.dat.6.txt": ("all-gather", 16, 2, 29, 0, None),
    "alcf_sophia__n2.g8__2024-10-15-11-28-16__all_reduce_output.dat.6.txt": ("all-reduce", 16, 2, 29, 4, None),
    "alcf_sophia__n2.g8__2024-10-15-11-28-16__alltoall_output.dat.6.txt": ("all-to-all", 16, 2, 29, 0, None),
    "deepops_dgxa100_2n_8xHDR200_allreduce.txt": ("all-reduce", 0, 0, 30, 8, None),
    "gcp_a3high_tcpx_allgather_2n.txt": ("all-gather", 0, 0, 10, 1 << 20, 7098.6),
    "oci_bm_gpu_b4_8_a100_2n_allreduce.txt": ("all-reduce", 16, 2, 4, 1 << 30, 84948.7),
    "superbench_a100_nccl_allgather.log": ("all-gather", 8, 1, 34, 0, None),
    "superbench_a100_nccl_allreduce.log": ("all-reduce", 8, 1, 34, 0, None),
    "superbench_a100_nccl_reducescatter.log": ("reduce-scatter", 8, 1, 34, 0, None),
}
WITHOUT = (
    "alcf_polaris__nccl_2_18__n128.g4.2024-04-29-18-31-53__nodes.dat.txt",
    "alcf_sophia__n2.g8__2024-10-15-11-28-16__all_reduce_output.dat.1.txt",
    "SOURCES.md",
)


def tables(tmp_path: Path, text: str, name: str = "run.txt") -> list[NcclTestsTable]:
    path = tmp_path / name
    path.write_text(text)
    return read_tables(path)


def test_a_table_with_all_it_says(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, NEW)
    assert (table.op, table.ranks, table.nodes, table.release) == ("all-reduce", 2, 2, "2.29.3")
    assert (table.gpu, table.dtype) == ("NVIDIA A100-SXM4-40GB", "float")
    assert table.rows[0] == SizeRow(1024, pytest.approx(20e-6), pytest.approx(10e-6))
    assert [row.size_bytes for row in table.rows] == [1024, 1 << 30]


def test_the_first_use_of_a_kernel_is_left_out_of_the_steady_time() -> None:
    assert SizeRow(1, 20e-6, 10e-6).steady_s == 10e-6
    assert SizeRow(1, 12e-6, 10e-6).steady_s == 12e-6
    assert SizeRow(1, 12e-6).steady_s == 12e-6


def test_old_headers_and_the_operation_from_the_name(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, OLD, "reduce_scatter_2n.log")
    assert (table.op, table.rows[0].size_bytes) == ("reduce-scatter", 32)
    assert tables(tmp_path, OLD, "x.log")[0].op == ""


def test_several_tables_and_prefixes(tmp_path: Path) -> None:
    prefixed = "".join(f"[1,0]<stdout>:{line}\n" for line in NEW.splitlines())
    exchange = NEW.replace("all_reduce_perf", "alltoall_perf")
    for whole, half in (
        ("9.86    9.86", "9.86    4.93"),
        ("9.88    9.88", "9.88    4.94"),
        ("0.05    0.05", "0.05    0.03"),
        ("0.10    0.10", "0.10    0.05"),
    ):
        exchange = exchange.replace(whole, half)
    both = tables(tmp_path, exchange + prefixed)
    assert [table.op for table in both] == ["all-to-all", "all-reduce"]
    assert both[0].rows == both[1].rows


ON_H100 = "".join(
    f"#  Rank  {rank} Group  0 Pid 19761{rank} on GPU BOX device  {rank} [0000:0{rank}:00] NVIDIA H100 80GB HBM3\n"
    for rank in range(8)
) + (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "  8589934592    2147483648     float     sum      -1    31356  273.95  479.41      0    31308  274.36  480.14      0\n"
)


@pytest.mark.parametrize("name", ["all_reduce_perf.txt", "mine.txt"])
def test_the_same_bytes_are_the_same_table_under_any_name(name: str, tmp_path: Path) -> None:
    """The ratio of both bandwidths settles the operation, so its own ceiling holds: switches that add are above a link."""
    (tmp_path / name).write_text(ON_H100)
    (table,) = read_tables(str(tmp_path / name))
    assert (table.op, len(table.rows), table.refused) == ("all-reduce", 1, ())


def test_a_host_may_have_a_space_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(ON_H100)
    (table,) = read_tables(str(tmp_path / "a.txt"))
    assert (table.ranks, table.nodes, table.gpu) == (8, 1, "NVIDIA H100 80GB HBM3")
    assert table.hosts[7] == "GPU BOX"


def test_json_lines(tmp_path: Path) -> None:
    line = '{"name":"allgather", "kernel":1, "ranks":16, "ranksPerNode":8, "size":8192, "time":83.5}\n'
    (table,) = tables(tmp_path, line, "baseline.jsonl")
    assert (table.op, table.ranks, table.nodes, table.rows) == (
        "all-gather",
        16,
        2,
        (SizeRow(8192, pytest.approx(83.5e-6)),),
    )
    with pytest.raises(InputError, match="no measurement"):
        tables(tmp_path, '{"size": 1}\n', "baseline.jsonl")


def test_csv_with_and_without_its_cases(tmp_path: Path) -> None:
    text = "case,bytes,time_us,time_inplace_us\na-all_gather,8,1.5,\n"
    (table,) = tables(tmp_path, text, "some_times.csv")
    assert (table.op, table.ranks, table.rows) == ("all-gather", 0, (SizeRow(8, pytest.approx(1.5e-6)),))
    (tmp_path / "some_cases.csv").write_text("case,collective,ranks,nodes,gpu\na-all_gather,alltoall,8,2,X\n")
    (table,) = read_tables(tmp_path / "some_times.csv")
    assert (table.op, table.ranks, table.nodes, table.gpu) == ("all-to-all", 8, 2, "X")
    with pytest.raises(InputError, match="no columns"):
        tables(tmp_path, "a,b\n1,2\n", "other_times.csv")


@pytest.mark.parametrize("text", ["", "nothing here\n", "# size count time\n", NEW.partition("        1024")[0]])
def test_no_table_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no nccl-tests table"):
        tables(tmp_path, text)


@given(st.lists(st.text(alphabet="0123456789 #.-abc\t", max_size=60), max_size=8))
def test_noise_never_breaks_the_reader(noise: list[str]) -> None:
    from ringwright.formats.sources.tables.nccl_tests import _text

    lines = NEW.splitlines()
    (table, *_) = list(_text([*lines[:9], *noise, *lines[9:]], "run.txt"))
    assert table.rows[0].size_bytes == 1024


@needs_shared_data
@pytest.mark.parametrize("name", REAL)
def test_real_tables(name: str) -> None:
    (table,) = read_tables(real(f"real/nccl-tests/{name}"))
    op, ranks, nodes, rows, first, last_us = REAL[name]
    assert (table.op, table.ranks, table.nodes, len(table.rows)) == (op, ranks, nodes, rows)
    assert table.rows[0].size_bytes == first
    assert last_us is None or table.rows[-1].time_s == pytest.approx(last_us * 1e-6)
    assert all(0 < row.time_s < 10 for row in table.rows)


@needs_shared_data
@pytest.mark.parametrize("name", WITHOUT)
def test_real_files_without_a_table(name: str) -> None:
    with pytest.raises(InputError):
        read_tables(real(f"real/nccl-tests/{name}"))


@needs_shared_data
def test_every_real_file_is_covered() -> None:
    folder = real("real/nccl-tests")
    assert {path.name for path in folder.iterdir()} == {*REAL, *WITHOUT, "mscclpp_ndmv4_baseline.jsonl"}
    found = read_tables(folder / "mscclpp_ndmv4_baseline.jsonl")
    assert {table.op for table in found} == {"all-gather", "all-reduce", "all-to-all"}
    assert len(read_tables(real("validation/nccl_times.csv"))) == 55


def test_json_lines_pass_the_laws_too(tmp_path: Path) -> None:
    """A gibibyte all-reduced by two GPUs in a microsecond is no measurement, in whatever shape it is told."""
    good, bad = (f'{{"name": "all_reduce", "ranks": 2, "size": {1 << 30}, "time": {time}}}\n' for time in (9000.0, 1.0))
    (table,) = tables(tmp_path, good + bad, "baseline.jsonl")
    assert [row.time_s for row in table.rows] == [pytest.approx(9e-3)]
    assert [(each.law, each.line) for each in table.refused] == [("ceiling", 2)]


def test_lines_that_two_processes_wrote_on_one_are_two() -> None:
    """Each process is its own rank 0 here, and their line ends came after both had written."""
    alone = re.sub(r"(0\.05|0\.10|9\.86|9\.88)    (?:\1)", r"\1    0.00", NEW.replace("Rank  1", "Rank  0"))
    head, rows = alone.split("\n")[:8], [line for line in alone.split("\n") if line.startswith("  ")]
    other = rows[0].replace("20.00", "21.00"), rows[1].replace("108874", "108880")
    closing = "# Out of bounds values : 0 OK# Avg bus bandwidth : 1"
    tables = list(text_tables([*head, rows[0] + other[0], "", rows[1] + other[1], "", closing], "two.txt"))
    assert [[row.time_s for row in table.rows] for table in tables] == [
        [pytest.approx(20e-6), pytest.approx(0.108874)],
        [pytest.approx(21e-6), pytest.approx(0.108880)],
    ]
