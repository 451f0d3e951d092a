"""Logs and tables as launchers, container runtimes, terminals and web pages hand them on: the same lines, the same figures."""

from __future__ import annotations

import gzip
import html
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ringwright
from ringwright.cli import main
from ringwright.formats.sources.gate.wrappers import LONGEST_LINE, unwrapped
from ringwright.formats.sources.launchers import plain
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError

# All-to-all before 2.13: its column redop is empty, so that the places of the words count.
TABLE = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   1320 on n1 device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  1 Pid   2066 on n2 device  0 [0x00] Tesla V100-SXM2-16GB
#
#                                                       out-of-place                       in-place
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072     float            512.0    2.05    1.02  0e+00    500.0    2.10    1.05    N/A
     2097152        262144     float           1024.0    2.05    1.02  0e+00   1000.0    2.10    1.05    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.03500
"""
PREFIXES: dict[str, Callable[[int, str], str]] = {
    "mpirun": lambda _, line: f"[1,0]<stdout>:{line}",
    "mpirun with a blank": lambda _, line: f"[1,0]<stdout>: {line}",
    "srun": lambda _, line: f"0: {line}",
    "srun flush right": lambda _, line: f" 0: {line}",
    "torchrun": lambda _, line: f"[default0]:{line}",
    "torchrun by rank": lambda _, line: f"[rank0]: {line}",
    "compose": lambda _, line: f"nccl-test-1  | {line}",
    "kubectl": lambda _, line: f"[pod/nccl-launcher-x7/launcher] {line}",
    "kubectl with times": lambda at, line: f"2024-05-01T12:00:{at:02d}.123456789Z {line}",
    "container runtime": lambda at, line: f"2024-05-01T12:00:{at:02d}.123456789+00:00 stdout F {line}",
    "Ray": lambda _, line: f"(RayTrainWorker pid=1234, ip=10.0.0.3) {line}",
    "Ray in colour": lambda _, line: f"\x1b[36m(RayTrainWorker pid=1234)\x1b[0m {line}",
    "coloured": lambda _, line: f"\x1b[32m{line}\x1b[0m",
    "journal": lambda at, line: f"May 01 12:00:{at:02d} node1 docker[1234]: {line}",
    "clock": lambda at, line: f"[12:00:{at:02d}] {line}",
    "pdsh": lambda _, line: f"node1: {line}",
    "number of a rank": lambda _, line: f"[0] {line}",
    "quoted": lambda _, line: f"> {line}",
    "difference": lambda _, line: f"+{line}",
    "two": lambda at, line: f"2024-05-01T12:00:{at:02d}Z [1,0]<stdout>:{line}",
}
WRAPS: dict[str, Callable[[str], str]] = {
    "docker": lambda line: json.dumps({"log": line + "\n", "stream": "stdout", "time": "2024-05-01T12:00:01.1Z"}),
    "cloud": lambda line: json.dumps({"textPayload": line, "resource": {"labels": {}}}),
    "journald": lambda line: json.dumps({"_PID": "7", "MESSAGE": line}),
    "frame": lambda line: f"│ {line:<220} │",
    "html": html.escape,
}


def written(folder: Path, text: str, each: Callable[[int, str], str], name: str = "run.log") -> str:
    path = folder / name
    path.write_text("".join(each(at % 60, line) + "\n" for at, line in enumerate(text.splitlines())))
    return str(path)


def rows(path: str) -> list[tuple[object, ...]]:
    events = ringwright.read(path).table("events")
    return events.select("op", "size_bytes", "duration_s", "value", "nranks", "task", "line").rows()


@pytest.mark.parametrize("launcher", PREFIXES)
def test_a_table_is_the_same_behind_every_launcher(tmp_path: Path, launcher: str) -> None:
    told = rows(written(tmp_path, TABLE, lambda _, line: line, "alltoall.log"))
    assert [row[:3] for row in told[::2]] == [("all-to-all", 1 << 20, 512e-6), ("all-to-all", 1 << 21, 1024e-6)]
    (tmp_path / "behind").mkdir()
    assert rows(written(tmp_path / "behind", TABLE, PREFIXES[launcher], "alltoall.log")) == told


@pytest.mark.parametrize(
    "line",
    [
        "     1048576        131072     float",
        "#   size  count",
        "node-1:7:9 [0] NCCL INFO x",
        "",
        "a: b",
        "12: no",
        "[1]",
    ],
)
def test_lines_without_a_launcher_stay(line: str) -> None:
    assert plain(line) == (line if line != "12: no" else "no")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_log_is_the_same_inside_whatever_carries_its_lines(tmp_path: Path, wrap: str, is_packed: bool) -> None:
    lines = gzip.decompress(Path(ringwright.sample()).read_bytes()).decode("utf-8", "replace").split("\n")[:-1]
    whole, carried = tmp_path / "whole.log", tmp_path / ("carried.log.gz" if is_packed else "carried.log")
    whole.write_text("\n".join(lines) + "\n")
    data = "".join(WRAPS[wrap](line) + "\n" for line in lines).encode()
    carried.write_bytes(gzip.compress(data) if is_packed else data)
    one, other = (ringwright.read(path).table("events").drop("file") for path in (whole, carried))
    assert one.height > 20
    columns = ["op", "size_bytes", "rank", "communicator", "line"]
    assert other.select(columns).rows() == one.select(columns).rows()


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_table_is_the_same_inside_whatever_carries_its_lines(tmp_path: Path, wrap: str) -> None:
    told = rows(written(tmp_path, TABLE, lambda _, line: line, "alltoall.log"))
    (tmp_path / "carried").mkdir()
    path = written(tmp_path / "carried", TABLE, lambda _, line: WRAPS[wrap](line), "alltoall.log")
    assert rows(path) == told


@pytest.mark.parametrize("is_packed", [False, True])
def test_lines_that_end_in_cr_alone_are_lines(tmp_path: Path, is_packed: bool) -> None:
    data = b"\n".join(gzip.decompress(Path(ringwright.sample()).read_bytes()).split(b"\n")[:1500]) + b"\n"
    (tmp_path / "lf.log").write_bytes(data)
    path, data = tmp_path / ("cr.log.gz" if is_packed else "cr.log"), data.replace(b"\n", b"\r")
    path.write_bytes(gzip.compress(data) if is_packed else data)
    columns = ["kind", "op", "size_bytes", "rank", "communicator", "line"]
    one, other = (ringwright.read(each).table("events").select(columns) for each in (tmp_path / "lf.log", path))
    assert one.height > 20
    assert other.equals(one)


@pytest.mark.parametrize("width", [80, 100, 137])
@pytest.mark.parametrize("launcher", ["", "[1,0]<stdout>:"])
def test_lines_that_a_terminal_cut_are_joined(tmp_path: Path, width: int, launcher: str) -> None:
    lines = gzip.decompress(Path(ringwright.sample()).read_bytes()).decode("utf-8", "replace").split("\n")[:1500]
    lines = [launcher + line for line in lines]
    pieces = [line[at : at + width] for line in lines for at in range(0, max(1, len(line)), width)]
    assert len(pieces) > 1.2 * len(lines)
    (tmp_path / "whole.log").write_text("\n".join(lines))
    (tmp_path / "cut.log").write_text("\n".join(pieces))
    columns = ["kind", "op", "size_bytes", "rank", "communicator"]
    one, other = (ringwright.read(tmp_path / name).table("events").select(columns) for name in ("whole.log", "cut.log"))
    assert one.height > 20
    assert other.height > 0.95 * one.height


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        "".join(f"node-{number:080}\n" for number in range(20)),
        "".join(f"{number},{'x' * 90},{number % 7}\n" for number in range(100, 140)),
        "".join(chr(97 + at) * 2 + chr(122 - at) * 74 + "\n" for at in range(20)),  # as base64 has them
        "[\n" + "".join(f'{{"{c * 3}": "{"v" * 70}",\n"{c * 5}x": 1}},\n' for c in "abcdefghij") + "]\n",
        "<a>\n" + "".join(f"<{c * 3} b='{'c' * 70}'>\n{c * 4} text\n" for c in "abcdefghij") + "</a>\n",
    ],
)
def test_lines_of_one_width_are_not_joined(text: str) -> None:
    source = Source("x", lambda: io.BytesIO(text.encode()))
    assert unwrapped(source, text.encode()) is source


def test_a_bar_of_progress_ends_no_line() -> None:
    head = b"  50%|###  |\r  75%|####  |\r  90%|#####  |\r 100%|######|\nstep 1\n"
    source = Source("run.log", lambda: io.BytesIO(head))
    assert unwrapped(source, head) is source


def test_records_of_several_lines_are_read(tmp_path: Path) -> None:
    records = [{"insertId": str(at), "textPayload": line} for at, line in enumerate(TABLE.splitlines())]
    path = tmp_path / "alltoall.json"
    path.write_text(json.dumps(records, indent=2))
    assert len(rows(str(path))) == 4


def test_standard_input_is_taken_out_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = "".join(WRAPS["docker"](line) + "\n" for line in TABLE.splitlines()).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["summary", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ledger"]["understood"] == 2


@pytest.mark.parametrize(
    "text", ['{"message": "hello"}\n{"message": "world"}\n', '{"log": 5}\n', "│ hello │\n", "a &gt; b\n"]
)
def test_what_holds_no_log_is_still_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(InputError, match="no line of NCCL"):
        ringwright.read(str(path))


def test_records_that_are_damaged_cost_their_line_only(tmp_path: Path) -> None:
    lines = [WRAPS["docker"](line) for line in TABLE.splitlines()]
    lines[3] = lines[3][:40]
    lines.insert(1, '{"log": "\\ud800 \\x", "stream": "stdout"}')
    path = tmp_path / "alltoall.log"
    path.write_text("\n".join(lines))
    assert [row[1] for row in rows(str(path))] == [1 << 20, 1 << 20, 1 << 21, 1 << 21]


def test_a_line_without_an_end_is_passed_on_in_bounded_pieces() -> None:
    begin = WRAPS["docker"](TABLE.splitlines()[0]).encode() + b"\n"
    data = begin + b'{"log": "' + b"x" * (3 * LONGEST_LINE)
    source = unwrapped(Source("x", lambda: io.BytesIO(data)), data[:1000])
    with source.open() as stream:
        read = stream.read()
    assert read.startswith(b"# nThread")
    assert len(read) < LONGEST_LINE


@pytest.mark.parametrize(
    "text",
    [
        "│" + " " * (1 << 20) + "\n",
        "│" * (1 << 18) + "\n",
        '{"log": ' * 5000 + '"x"' + "}" * 5000 + "\n",
        '{"log": "' + '\\"' * (1 << 19) + "\n",
        '{"log": "nThread 1 nGpus 1' + "\\u0020" * 40_000 + '"}\n',
        "-&gt;" * (1 << 18) + "\n",
    ],
)
def test_hostile_lines_end_in_an_error_or_a_line(text: str) -> None:
    """Each is looked at once: what would be tried from each of its places would not end."""
    data = text.encode() * 3
    source = unwrapped(Source("x", lambda: io.BytesIO(data)), data[: 256 << 10])
    with source.open() as stream:
        assert stream.read(1) in (b"", b"n", text.encode()[:1], b"-", b"\n")


APART = """\
# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid   1320 on n1 device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  0 Pid   2066 on n2 device  0 [0x00] Tesla V100-SXM2-16GB
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
        1024           256     float     sum      4.0    0.26    0.00  0e+00      2.0    0.51    0.00  0e+00
        1024           256     float     sum      5.0    0.20    0.00  0e+00      2.5    0.41    0.00  0e+00
        2048           512     float     sum      6.0    0.34    0.00  0e+00      3.0    0.68    0.00  0e+00
# Avg bus bandwidth    : 0
        2048           512     float     sum      8.0    0.26    0.00  0e+00      4.0    0.51    0.00  0e+00
# Avg bus bandwidth    : 0
"""


def test_processes_that_ran_apart_are_told_and_kept_apart(tmp_path: Path) -> None:
    found = ringwright.summary(ringwright.read(written(tmp_path, APART, lambda _, line: line, "all_reduce.txt")))
    assert found["answer"]["sentence"] == ("Nothing was measured between ranks: 2 processes ran the benchmark apart.")
    told = [(row["table"], row["time_us"]) for row in found["bandwidth"] if row["task"] == "out-of-place"]
    assert sorted(time for _, time in told) == [4.0, 5.0, 6.0, 8.0]
    assert len({table for table, _ in told}) == 2
    assert "2 processes ran the benchmark apart" in [each["title"] for each in found["findings"]]


def test_one_rank_alone_has_times_and_no_bandwidth(tmp_path: Path) -> None:
    alone = "".join(
        line + "\n" for line in APART.splitlines() if "2066" not in line and " 5.0 " not in line and " 8.0 " not in line
    )
    found = ringwright.summary(ringwright.read(written(tmp_path, alone, lambda _, line: line, "all_reduce.txt")))
    assert found["answer"]["sentence"] == "Nothing was measured between ranks: the benchmark ran on one rank."
    assert {(row["algbw_gbs"], row["busbw_gbs"]) for row in found["bandwidth"]} == {(None, None)}
    assert [(row["law"], row["refused"]) for row in found["laws"]] == [("alone", 4)]


def test_devices_are_known_where_a_page_took_the_hashes_away(tmp_path: Path) -> None:
    text = TABLE.replace("#", "")
    found = ringwright.read(written(tmp_path, text, lambda _, line: line, "alltoall.txt")).table("claims")
    said = {row["field"]: row["value"] for row in found.to_dicts()}
    assert (said["gpu"], said["hosts"], said["ranks"]) == ("Tesla V100-SXM2-16GB", "n1 n2", "2")
