"""bench and compare: the tables they print, what the probe makes of known machines, and a capture's way back."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.costs.calibration import load
from ringwright.engines.choose import simulate
from ringwright.execute.mpi_runtime import available
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.registry import algorithm
from ringwright.model.trace import Trace
from ringwright_lab.bench import BenchSpec, bench, calibration_of, capture, compare, probe

pytestmark = pytest.mark.once

STAR, PAIR = "switch:4,rate=100Mb/s", "switch:2,rate=100Mb/s"
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or len(available()) < 2, reason="the MPI wheels are absent"
)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
ROW = {"backend", "algorithm", "ranks", "size_bytes", "time_us", "busbw_gbs", "wrong", "predicted_us"}


@pytest.fixture(autouse=True)
def _own_labs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labs of other tests are none of ours."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# -------------------------------------------------------------------------------------------------------------- bench
def test_rows_hold_what_is_promised(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(
        capsys,
        "bench",
        "all-reduce",
        "--ranks",
        "2",
        "--algorithm",
        "ring,halving-doubling",
        "-b",
        "64K",
        "-e",
        "1M",
        "-f",
        "16",
        "-n",
        "3",
    )
    assert found["schema"] == "ringwright.bench/1"
    assert [(row["algorithm"], row["size_bytes"]) for row in found["rows"]] == [
        ("halving-doubling", 65536),
        ("ring", 65536),
        ("halving-doubling", 1048576),
        ("ring", 1048576),
    ]
    for row in found["rows"]:
        assert row.keys() >= ROW
        assert row["backend"] == "ringwright"
        assert (row["ranks"], row["wrong"], row["runs"] % 3) == (2, 0, 0)
        assert row["time_us"] > 0
        assert row["predicted_us"] > 0
        assert row["busbw_gbs"] == pytest.approx(row["size_bytes"] / row["time_us"] / 1e3)  # 2 (p-1)/p is 1 for two


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("broadcast", "binomial"),
        ("reduce", "binomial"),
        ("gather", "linear"),
        ("scatter", "linear"),
        ("all-gather", "ring"),
        ("reduce-scatter", "ring"),
        ("all-to-all", "pairwise"),
    ],
)
def test_every_rooted_and_plain_collective_runs(op: str, name: str) -> None:
    found = bench(BenchSpec(op, 2, [6000], algorithms=[name], rounds=1, root=1 if op in ("reduce", "gather") else 0))
    assert [row["wrong"] for row in found["rows"]] == [0]


def test_the_terminal_table_has_the_columns_of_nccl_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "all-gather", "--ranks", "2", "-b", "4K", "-n", "2"]) == 0
    told = capsys.readouterr().out
    for column in ("size B", "count", "type", "time us", "algbw", "busbw", "#wrong", "predicted us"):
        assert column in told
    assert "4096" in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--backend", "nonsense"), "no backend 'nonsense'"),
        (("--backend", "ringwright@memory", "--lab", STAR), "do not share memory"),
        (("--algorithm", "rng"), "no system is called"),
        (("--lab", "switch:3,rate=10Mb/s"), "4 ranks in a lab of 3"),
    ],
)
def test_questions_that_cannot_be_asked(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "all-reduce", "-b", "64", *words]) == 2
    assert says in capsys.readouterr().err


def test_what_an_algorithm_declines_is_said() -> None:
    found = bench(BenchSpec("all-gather", 3, [300], algorithms=["neighbor-exchange", "ring"], rounds=1))
    assert {row["algorithm"] for row in found["rows"]} == {"ring"}
    assert any(note.startswith("neighbor-exchange left out") for note in found["notes"])


@pytest.mark.mpi
@needs_mpi
def test_a_library_and_ours_take_turns_on_the_same_ranks() -> None:
    found = bench(
        BenchSpec(
            "all-reduce",
            2,
            [1 << 16],
            ["openmpi", "ringwright", "ringwright@openmpi"],
            ["ring", "rabenseifner"],
            rounds=3,
        )
    )
    assert {(row["backend"], row["algorithm"]) for row in found["rows"]} == {
        (name, how) for name in ("openmpi", "ringwright", "ringwright@openmpi") for how in ("ring", "rabenseifner")
    }
    assert all(row["wrong"] == 0 and row["predicted_us"] for row in found["rows"])
    assert len(found["ratios"]) == 4
    assert all(each["native"] == "openmpi" and each["ratio"] > 0 for each in found["ratios"])


@pytest.mark.mpi
@needs_mpi
def test_a_library_without_the_algorithm_is_named_in_the_notes() -> None:
    found = bench(BenchSpec("all-reduce", 2, [1 << 12], ["mpich", "ringwright"], ["swing"], rounds=1))
    assert {row["backend"] for row in found["rows"]} == {"ringwright"}
    assert any("MPICH has no all-reduce by swing" in note for note in found["notes"])


# -------------------------------------------------------------------------------------------------------------- the probe
MACHINES = [
    probe.ProbedMachine(5e-6, 2e-6, 4e9, 1e10, float("inf")),
    probe.ProbedMachine(20e-6, 0.0, 1e9, 4e9, 3e9),
    probe.ProbedMachine(1e-6, 0.5e-6, 2e10, 3e10, 8e9),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["ring", "rabenseifner", "pairwise"])
def test_a_known_machine_is_found_again_from_its_probe(machine: probe.ProbedMachine, name: str) -> None:
    """What the simulator times on a machine, it times alike on the machine fitted from that one's probe."""
    p, size = 4, 1 << 22
    truth = machine.topology(p)
    times_s = {
        (kind, bytes_): simulate(program, truth).time_s / probe.STEPS
        for kind, bytes_, program in probe.programs(p, [size // p // 8, size // p, size])
    }
    found = probe.fit(p, times_s, size / p).topology(p)
    op = "all-to-all" if name == "pairwise" else "all-reduce"
    _, make, _ = algorithm(name)
    program = make(BenchSpec(op, p, [size]).collective(size), truth)
    assert simulate(program, found).time_s == pytest.approx(simulate(program, truth).time_s, rel=0.15)


def test_noise_never_makes_a_machine_without_limits() -> None:
    times_s = {("shift", 64): 1e-5, ("adds", 64): 1e-5, ("pair", 64): 1e-5, ("fan", 64): 9e-6}
    times_s |= {(kind, 4096): 8e-6 for kind in ("shift", "adds", "pair")}  # large ones faster than small ones
    found = probe.fit(4, times_s, 4096)
    assert found.message_s == 0
    assert found.rate <= 4096 / (probe.LEAST_SHARE * 8e-6) * 1.001


def test_a_calibration_is_written_and_simulated_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "here.json"
    assert (
        main(
            [
                "bench",
                "all-reduce",
                "--ranks",
                "2",
                "-b",
                "64K",
                "-e",
                "1M",
                "-f",
                "4",
                "-n",
                "3",
                "--calibration",
                str(target),
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert load(target).fabric == "switch:2"
    found = run(capsys, "simulate", "all-reduce", "--fabric", "switch:2", "--calibration", str(target), "-b", "1M")
    assert "this machine" in found["provenance"]


def test_a_calibration_is_of_the_first_backends_own_wire(tmp_path: Path) -> None:
    """Other wires are probed in the same run; they must not be taken for this one, nor a lab's, which probes no rates."""
    probed = [
        {
            "backend": "openmpi",
            "wire": wire,
            "kind": kind,
            "size_bytes": size,
            "time_us": time_us * (2 if size > 64 else 1),
        }
        for wire, time_us in (("mpi", 500.0), ("memory", 10.0))
        for kind in ("shift", "adds", "pair")
        for size in (64, 65536)
    ]
    row = {"backend": "ringwright", "wire": "memory", "beside": "openmpi", "size_bytes": 131072, "time_us": 100.0}
    result = {
        "rows": [{**row, "predicted_us": 100.0}],
        "probe": probed,
        "ranks": 2,
        "lab": None,
        "collective": "all-reduce",
    }
    assert calibration_of(result, tmp_path / "c.json").inside.latency_s == pytest.approx(10e-6)
    with pytest.raises(UsageError, match="no rates were probed"):
        calibration_of({**result, "lab": STAR}, tmp_path / "c.json")


# -------------------------------------------------------------------------------------------------------------- compare
def made_up(
    folder: Path, fitted: compare.Fitted, faults: tuple[str, ...] = (), starts_s: tuple[float, ...] = (0.0, 1.0)
) -> None:
    """Write a capture whose times the simulator itself has made, with numbers that compare has to find."""
    sizes = [1 << shift for shift in (16, 18, 20, 22)]
    question = BenchSpec("all-reduce", 4, sizes, algorithms=["ring", "halving-doubling"], lab=STAR, faults=faults)
    machine = apply(fabric(STAR), faults) if faults else fabric(STAR)
    runs = []
    for name in question.algorithms:
        for size in sizes:
            run_ = {"backend": "ringwright", "algorithm": name, "size_bytes": size, "start_s": [0.0], "time_s": [1.0]}
            seen = compare._Run(question, machine, run_)
            times = [simulate(seen.program, compare.since(seen.machine(fitted), start)).time_s for start in starts_s]
            runs.append({**run_, "start_s": list(starts_s), "time_s": times})
    asked = {**vars(question), "sizes": sizes}
    document = {"schema": capture.SCHEMA, "question": asked, "result": {"verdict": None}, "runs": runs}
    folder.mkdir()
    (folder / capture.FILE).write_text(json.dumps(document))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "fitted", [compare.Fitted(150e-6, 0.93), compare.Fitted(2e-3, 0.6), compare.Fitted(20e-6, 0.956)]
)
def test_the_two_numbers_are_found_from_half_of_the_sizes(fitted: compare.Fitted, tmp_path: Path) -> None:
    made_up(tmp_path / "capture", fitted)
    found = compare.compare(tmp_path / "capture")
    assert sum(row.used for row in found.rows) == 4  # two of four sizes, two algorithms
    error = found.geomean_error
    assert error is not None
    assert error < 0.05  # what is known of wires pulls a little
    assert found.fitted["ringwright"].share == pytest.approx(fitted.share, rel=0.05)


def test_rounds_are_simulated_from_their_own_moment_in_the_script(tmp_path: Path) -> None:
    faults = ("link * rate 25% from 1s to 100s",)
    made_up(tmp_path / "capture", compare.Fitted(100e-6, 0.95), faults, (0.0, 3.0, 4.0))
    found = compare.compare(tmp_path / "capture")
    error = found.geomean_error
    assert error is not None
    assert error < 0.03
    slow = max(found.rows, key=lambda row: row.size_bytes)
    assert (
        slow.measured_us > 4 * 2 * 3 / 4 * slow.size_bytes / 12.5e6 * 1e6
    )  # the median round saw a quarter of the rate


def test_a_topology_later_in_its_script_knows_what_still_holds() -> None:
    machine = apply(fabric(STAR), ["link rank3 rate 20% from 1s to 2s", "link rank2 rate 50% from 4s to 5s"])
    now = compare.since(machine, 1.5)
    assert {fault.time_s for fault in now.faults} == {0.0, 0.5, 2.5, 3.5}
    assert sum(fault.time_s == 0.0 and fault.value == 0.2 for fault in now.faults) == 2
    assert not [fault for fault in compare.since(machine, 9.0).faults if fault.value != 1.0]


def test_what_has_no_model_is_declared() -> None:
    said = compare.beyond(fabric(STAR), ["link rank3 loss 1%", "link rank1 flap 100ms every 1s", "flow 1>2"], 0)
    assert [line.partition(":")[0] for line in said] == ["flow 1>2", "loss", "dead and flapping links"]
    assert compare.beyond(fabric(STAR), ["link rank3 rate 20%"], 0) == []


def test_compare_refuses_what_is_no_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tmp_path)]) == 3
    assert "no capture of a benchmark" in capsys.readouterr().err
    damaged = json.dumps({"schema": capture.SCHEMA, "question": {"op": "all-reduce"}, "runs": 3})
    for text in ("", "[]", "{", '{"schema": "other/1"}', damaged):
        (tmp_path / "bench.json").write_text(text)
        with pytest.raises(InputError):
            compare.compare(tmp_path)


def test_a_capture_on_this_machine_has_no_known_links(tmp_path: Path) -> None:
    bench(BenchSpec("all-reduce", 2, [1 << 12], rounds=1, record=True), out=tmp_path / "capture")
    with pytest.raises(InputError, match="links nobody knows"):
        compare.compare(tmp_path / "capture")


# -------------------------------------------------------------------------------------------------------------- the run is a Trace
def test_a_recorded_run_is_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench(BenchSpec("all-reduce", 3, [30_000], rounds=1, record=True), out=tmp_path / "capture")
    folder = tmp_path / "capture" / capture.name("ringwright", "ring", 30_000)
    events = Trace.open(folder).df
    whole = events.filter(events["kind"] == "collective")
    assert whole["rank"].to_list() == [0, 1, 2]
    assert set(whole["size_bytes"]) == {30_000}
    messages = events.filter(events["kind"] == "proxy")
    assert messages["sent_bytes"].sum() == 3 * 4 * 10_000  # 2 (p-1)/p n from each
    received = messages.filter(messages["sent_bytes"] == 0)
    assert received["size_bytes"].sum() == 3 * 4 * 10_000
    assert sorted(set(received["op"])) == ["recv", "reduce"]
    assert (messages["start_s"] >= 0).all()
    assert (messages["duration_s"] >= 0).all()
    assert main(["summary", str(folder), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [(each["op"], each["count"], each["bytes"]) for each in summary["operations"]] == [("all-reduce", 1, 30_000)]


# -------------------------------------------------------------------------------------------------------------- in the lab
@pytest.mark.lab
def test_in_the_lab_measured_meets_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loose, for cores here are shared with whatever else runs; the campaign is scripts/lab-prediction."""
    folder = tmp_path / "capture"
    words = (
        "--lab",
        STAR,
        "--fault",
        "link rank3 rate 50%",
        "--algorithm",
        "ring,halving-doubling",
        "-b",
        "128K",
        "-e",
        "256K",
    )
    found = run(capsys, "bench", "all-reduce", "--ranks", "4", *words, "-n", "2", "--out", str(folder))
    assert all(row["wrong"] == 0 and row["predicted_us"] for row in found["rows"])
    ring = [row for row in found["rows"] if row["algorithm"] == "ring"]
    for row in ring:
        assert 1.5 * row["size_bytes"] <= row["sent_bytes"] < 1.2 * 1.5 * row["size_bytes"]  # the optimum, and headers
    compared = run(capsys, "compare", str(folder))
    assert compared["schema"] == "ringwright.compare/1"
    asked = compared["asked"]
    assert (asked["fabric"], asked["faults"], asked["algorithms"]) == (
        STAR,
        ["link rank3 rate 50%"],
        ["ring", "halving-doubling"],
    )
    assert len(compared["rows"]) == 4
    assert all(row.keys() >= {"collective", "size_bytes", "measured_us", "simulated_us"} for row in compared["rows"])
    assert compared["geomean_error"] < 0.5
    assert main(["compare", str(folder), "-o", str(tmp_path / "page.html")]) == 0
    assert "geometric mean over the predicted" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert page.count("<rect") >= 2 * 4 * (6 + 4)  # two panels, four ranks, a bar for each step
    assert main(["lab", "--list"]) == 0
    assert not capsys.readouterr().out.strip()


@pytest.mark.lab
def test_a_killed_rank_is_named_and_what_was_measured_before_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The 64 KiB take 40 ms a round, the 1 MiB 600 ms: the kill comes in the midst of the latter."""
    folder = tmp_path / "capture"
    words = (
        "--lab",
        "switch:3,rate=20Mb/s",
        "--fault",
        "rank 1 kill at 3s",
        "-b",
        "64K",
        "-e",
        "1M",
        "-f",
        "16",
        "-n",
        "12",
    )
    assert main(["bench", "all-reduce", "--ranks", "3", *words, "--timeout", "10s", "--out", str(folder)]) == 5
    told = capsys.readouterr().err
    assert "rank 1 was killed by signal 9" in told
    assert "rank 0" in told  # who waited for it
    kept = capture.load(folder)
    assert "rank 1 was killed by signal 9" in kept["result"]["failure"]
    rounds = {run_["size_bytes"]: len(run_["time_s"]) for run_ in kept["runs"]}
    assert rounds[1 << 16] == 12
    assert rounds.get(1 << 20, 0) < 12
    timeline = [json.loads(line) for line in (folder / "timeline.jsonl").read_text().splitlines()]
    assert [event["what"] for event in timeline if event["event"] == "fault"] == ["rank rank1 kill"]
    assert run(capsys, "compare", str(folder))["rows"]
    assert main(["lab", "--list"]) == 0
    assert not capsys.readouterr().out.strip()


@pytest.mark.lab
@pytest.mark.torch
@needs_torch
def test_gloo_moves_an_all_reduce_for_a_reduce_scatter_and_ours_the_optimum() -> None:
    size = 1 << 19
    found = bench(BenchSpec("reduce-scatter", 2, [size], ["gloo", "ringwright"], ["ring"], lab=PAIR, rounds=1))
    sent = {row["backend"]: row["sent_bytes"] for row in found["rows"]}
    assert 0.5 * size <= sent["ringwright"] < 1.2 * 0.5 * size
    assert size <= sent["gloo"] < 1.3 * size
    assert {(row["backend"], row["algorithm"]) for row in found["rows"]} == {
        ("gloo", "all-reduce"),
        ("ringwright", "ring"),
    }
    assert [each["native_algorithm"] for each in found["ratios"]] == ["all-reduce"]
    assert any("as an all-reduce" in note for note in found["notes"])


def test_questions_know_their_own_names() -> None:
    with pytest.raises(UsageError, match="no backend"):
        BenchSpec("all-reduce", 2, [64], ["ringwright@nowhere"]).candidates()
    assert [each.executor.name for each in BenchSpec("all-reduce", 2, [64], lab=STAR).candidates()] == ["sockets"]
