"""read, doctor and live: what files are, why nothing is seen, and a job that grows."""

from __future__ import annotations

import io
import json
from importlib.resources import files
from pathlib import Path

import pytest

from ringwright.capture.doctor import examine
from ringwright.capture.live.following import Snapshot, follow
from ringwright.cli import main
from ringwright.formats.sources import read
from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from ringwright.reports import checkup
from ringwright.reports.live import screen

SAMPLE = str(files("ringwright") / "samples" / "job.log.gz")
LINE = "node0:1:2 [0] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x1 recvbuff 0x2 count 256 datatype 7 op 0 root 0 comm 0xa [nranks=2] stream 0x3\n"


def test_read_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", SAMPLE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "ringwright.read/1"
    assert found["files"][0]["kind"] == "nccl-log"
    assert "collective" in found["read"]
    assert main(["read", SAMPLE]) == 0
    assert "NCCL or RCCL debug log" in capsys.readouterr().out


def test_a_folder_of_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(LINE.format(n=0))
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "notes.bin").write_bytes(b"\x00\x01")
    assert main(["read", str(tmp_path), "--json"]) == 0
    kinds = {Path(row["file"]).name: row["kind"] for row in json.loads(capsys.readouterr().out)["files"]}
    assert kinds == {"a.log": "nccl-log", "package.json": "unknown", "notes.bin": "unknown"}


def test_settings_are_examined() -> None:
    def state(**environment: str) -> dict[str, str]:
        return {check["about"]: check["state"] for check in examine(environment)["checks"]}

    bare = state()
    assert bare["NCCL log"] == bare["calls in the log"] == bare["one log per process"] == "missing"
    full = state(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,COLL", NCCL_DEBUG_FILE="x.%h.%p", TORCH_FR_BUFFER_SIZE="10")
    assert (
        full["NCCL log"] == full["calls in the log"] == full["one log per process"] == full["Flight Recorder"] == "good"
    )
    assert state(TORCH_FR_BUFFER_SIZE="many")["Flight Recorder"] == "missing"
    assert state(NCCL_PROFILER_PLUGIN="libnccl-profiler-inspector.so")["Inspector"] == "missing"
    assert "overlap" in state(CUDA_DEVICE_MAX_CONNECTIONS="1")


def test_recordings_are_examined() -> None:
    full = {check["about"]: check for check in examine(trace=read(SAMPLE))["checks"]}
    assert full["calls"]["state"] == full["sizes"]["state"] == "good"
    assert full["times"]["state"] == "missing"
    assert full["times"]["remedy"]
    nothing = Trace.of({}, {"source": "nccl-log"})
    checks = {check["about"]: check for check in examine(trace=nothing)["checks"]}
    assert "COLL" in checks["calls"]["remedy"]
    bench = Trace.of({"events": rows("events", [{"kind": "measurement", "op": "all-reduce"}])}, {"source": "bench"})
    assert [check["state"] for check in examine(trace=bench)["checks"]] == ["good", "note", "good"]


def test_every_finding_of_the_doctor_can_be_read() -> None:
    out = io.StringIO()
    checkup.write(examine({}), out)
    text = out.getvalue()
    for check in examine({})["checks"]:
        assert check["about"] in text
        assert check["state"] != "missing" or check["remedy"]


def test_a_growing_log_is_followed(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    now = [0.0]

    def grow(pause_s: float) -> None:
        now[0] += pause_s
        begun = log.read_text().count("\n") if log.exists() else 0
        if now[0] > 20:
            raise KeyboardInterrupt
        if now[0] < 12:
            with log.open("a") as out:
                out.writelines(LINE.format(n=begun + k) for k in range(5))

    seen: list[Snapshot] = []
    with pytest.raises(KeyboardInterrupt):
        seen.extend(follow([str(log)], 2.0, clock=lambda: now[0], sleep=grow))
    assert "nothing at" in seen[0].waiting
    counts = [snapshot.operations[0]["count"] for snapshot in seen[1:]]
    assert counts == [5, 10, 15, 20, 25]
    assert [snapshot.operations[0]["new"] for snapshot in seen[1:]] == [5] * 5
    assert seen[-1].operations[0]["per_s"] == pytest.approx(2.5)
    assert seen[-1].document()["schema"] == "ringwright.live/1"


def test_live_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "job.prom"
    assert main(["live", SAMPLE, "--once", "--textfile", str(target)]) == 0
    assert "all-reduce" in capsys.readouterr().out
    assert "nccl_collectives_total" in target.read_text()
    assert main(["live", SAMPLE, "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operations"]
    with pytest.raises(UsageError):
        next(follow([SAMPLE], 0))


def test_the_live_table_is_drawn_in_place() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    snapshot = next(follow([SAMPLE]))
    with screen(out) as show:
        show(snapshot)
        show(snapshot)
    assert "all-reduce" in out.getvalue()


def test_a_notebook_shows_a_trace() -> None:
    hostile = Trace.of(
        {"events": rows("events", [{"kind": "<script>", "op": "x", "multiplicity": 3}])}, {"source": "<b>"}
    )
    page = hostile._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert ">3<" in page


def test_a_timeline_needs_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(LINE.format(n=0))
    assert main(["convert", str(log), "--format", "perfetto", "-o", str(tmp_path / "x.json")]) == 3
    assert "has a time" in capsys.readouterr().err
