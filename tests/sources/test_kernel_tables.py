"""Tables of kernels: what nsys stats prints, as columns and CSV, and PyTorch's table of averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.formats.sources.reader_rows import whole_number
from ringwright.ground.errors import InputError
from shared_data import needs_shared_data, real

TRACE = """\
 ** CUDA GPU Trace (cuda_gpu_trace):

 Start (ns)  Duration (ns)  CorrId  GrdX  BlkX  Bytes (MB)  SrcMemKd  DstMemKd           Device            Ctx  GreenCtx  Strm  Name
 ----------  -------------  ------  ----  ----  ----------  --------  --------  -------------------------  ---  --------  ----  ----
    1000000          20000      11    24   640                                  NVIDIA H100 80GB HBM3 (1)    1              24  ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)
    1100000          30000      12    24   512                                  NVIDIA H100 80GB HBM3 (1)    1               7  void gemm(float *, int)
    1200000            900      13                   0.004  Pageable  Device    NVIDIA H100 80GB HBM3 (1)    1               7  [CUDA memcpy Host-to-Device]

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  Name
 --------  ---------------  ---------  --------  --------  --------  --------  -----------  ----
     40.0           20,000          1  20,000.0  20,000.0    20,000    20,000          0.0  ncclDevKernel_AllReduce_Sum_bf16_RING_LL
"""
SUMS = """\
Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Name
60.0,6000.0,100,60.0,60.0,50.0,70.0,1.0,"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(a, b)"
40.0,4000.0,40,100.0,20.0,9.0,11.0,1.0,"void gemm(float *, int)"
"""
AVERAGES = """\
---------------------------------  ------------  ------------  ------------  ------------  ------------  ------------
                             Name    Self CPU %      Self CPU     CPU total     Self CUDA    CUDA total    # of Calls
---------------------------------  ------------  ------------  ------------  ------------  ------------  ------------
                   aten::all_gather         0.13%     150.628ms       26.647s       0.000us        4.000s           410
                        nccl:_all_gather         0.00%       0.000us       0.000us        4.000s        4.000s          1000
 ncclDevKernel_AllGather_RING_LL(ncclD...         0.00%       0.000us       0.000us        4.000s        4.000s          1000
                      nccl:broadcast         0.00%       0.000us       0.000us      30.000ms      30.000ms            10
                    Memcpy HtoD (Pageable -> Device)         0.00%       0.000us       0.000us       1.000ms       1.000ms           10
---------------------------------  ------------  ------------  ------------  ------------  ------------  ------------
Self CPU time total: 9.000s
Self CUDA time total: 5.000s
"""
PRINTED = {"nsys-text": TRACE, "key-averages": AVERAGES}


def rows(folder: Path, text: str, name: str = "x.txt") -> list[tuple[Any, ...]]:
    (folder / name).write_text(text)
    frame = read(folder / name).df
    return frame.select("kind", "op", "multiplicity", "start_s", "duration_s", "device", "stream").rows()


def test_a_trace_of_kernels_is_read_and_its_sums_are_not_counted_again(tmp_path: Path) -> None:
    assert rows(tmp_path, TRACE) == [
        ("collective", "all-reduce", 1, 0.0, pytest.approx(20e-6), 1, "24"),
        ("compute", None, 1, pytest.approx(1e-4), pytest.approx(30e-6), 1, "7"),
        ("memory", "copy", 1, pytest.approx(2e-4), pytest.approx(0.9e-6), 1, "7"),
    ]
    assert read(tmp_path / "x.txt").meta["library"] == "nccl"


def test_sums_as_csv_are_calls_of_their_mean_time_in_the_unit_of_the_column(tmp_path: Path) -> None:
    assert rows(tmp_path, SUMS) == [
        ("collective", "reduce-scatter", 100, None, pytest.approx(60e-6), None, None),
        ("compute", None, 40, None, pytest.approx(100e-6), None, None),
    ]


def test_the_trace_as_csv_and_with_blanks_collapsed(tmp_path: Path) -> None:
    names = "Start (ns),Duration (ns),CorrId,Device,Ctx,GreenCtx,Strm,Name"
    assert rows(tmp_path, f'{names}\n"1,000",50,3,GPU (2),1,,9,"ncclDevKernel_SendRecv(a, b)"\n')[0][:2] == (
        "p2p",
        "send-recv",
    )
    collapsed = " ".join(TRACE.split("\n")[2].split()) + "\n" + " ".join(TRACE.split("\n")[4].split()) + "\n"
    assert rows(tmp_path, collapsed)[0][1:] == ("all-reduce", 1, 0.0, pytest.approx(20e-6), 1, "24")


def test_a_table_of_averages_counts_each_kernel_once(tmp_path: Path) -> None:
    assert rows(tmp_path, AVERAGES) == [
        ("collective", "all-gather", 1000, None, pytest.approx(4e-3), None, None),
        ("collective", "broadcast", 10, None, pytest.approx(3e-3), None, None),  # of which no kernel is listed
        ("memory", "copy", 10, None, pytest.approx(1e-4), None, None),
    ]
    claims = {claim["field"]: claim["value"] for claim in read(tmp_path / "x.txt").table("claims").to_dicts()}
    assert claims["time on CUDA in all"] == "5 s"


def test_the_rank_of_a_file_is_that_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "rank3.txt").write_text(TRACE)
    assert set(read(tmp_path / "rank3.txt").df["rank"]) == {3}


@pytest.mark.parametrize("text", [TRACE.split("    1000000", maxsplit=1)[0], AVERAGES.split("    aten", maxsplit=1)[0]])
def test_a_table_without_a_kernel_says_what_to_print(text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(InputError, match="no kernel"):
        read(tmp_path / "x")


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "source", "op", "calls", "longest_us"),
    [
        ("fuser4627_nsys.txt", "nsys-text", "all-reduce", 3, 389.0),
        ("pt102434_keyavg.txt", "key-averages", "all-gather", 3380, 12199),
    ],
)
def test_published_tables_of_kernels(name: str, source: str, op: str, calls: int, longest_us: float) -> None:
    trace = read(real(f"field/{name}"))
    summary = summarise(trace)
    assert summary["source"] == source
    assert [(row["op"], row["count"]) for row in summary["operations"]] == [(op, calls)]
    assert trace.df["duration_s"].max() * 1e6 == pytest.approx(longest_us, rel=1e-3)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), (" -12 ", -12), ("--12", None), ("1-2", None), ("9" * 30, None), ("", None)]
)
def test_a_number_that_is_none_is_no_error(text: str, number: int | None, tmp_path: Path) -> None:
    assert whole_number(text) == number
    told = [row[2] for row in rows(tmp_path, AVERAGES.replace("          1000\n", f"{text:>14}\n", 1))]
    assert 1000 in told  # the row beside it is read all the same
