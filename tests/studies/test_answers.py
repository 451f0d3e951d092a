"""The most probable time: whose it is, what moves it, what makes it longer, and what it admits not to know."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import ringwright
from ringwright.accuracy.judged_choices import choices
from ringwright.calls.asked_fabric import AskedFabric, lasting, without_rates
from ringwright.calls.library_calls import library_call, measured_calls, usual_algorithm
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.cli import main
from ringwright.costs.calibration import calibrated, load, save
from ringwright.costs.learnt import expected, shipped
from ringwright.costs.learnt.engines import CALIBRATED, CALIBRATED_LIBRARY, OF_LIBRARY, USUAL, factors
from ringwright.costs.learnt.trusted import MeasuredCall, chance, joint
from ringwright.costs.probable_time import NINETY
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.model.collective import OPS, Collective

BYTES = 64 << 20
KEYS = {"time_us_p05", "time_us_p50", "time_us_p95", "calibration", "outside", "witnesses", "bound_us", "bound_kind"}


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["simulate", *words, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def p50(spec: str, *faults: str, algorithm: str = "", op: str = "all-reduce", size: int = BYTES) -> float:
    """Return the most probable us of a call on a fabric with faults."""
    healthy = fabric(spec)
    question = SimulationSpec(op, apply(healthy, faults), healthy=healthy)
    usual = usual_algorithm(question.collective(size), healthy)
    found = sweep(question, [algorithm or usual], [size])["rows"][0]["time_us_p50"]
    assert isinstance(found, float)
    return found


def test_without_an_algorithm_the_library_of_the_gpus_answers(capsys: pytest.CaptureFixture[str]) -> None:
    row = rows(capsys, "all-reduce", "--fabric", "dgx-h100:2", "-b", "1G")[0]
    assert row.keys() >= KEYS
    assert (row["algorithm"], row["engine"], row["calibration"]) == ("nccl-2-4", "library", "prior")
    assert row["time_us"] == row["time_us_p50"] == row["witnesses"]["library"]
    assert row["bound_us"] <= row["time_us_p05"] < row["time_us_p50"] < row["time_us_p95"]
    assert row["witnesses"].keys() == {"library", "closed-form", "events"}
    assert row["busbw_gbs"] == pytest.approx((1 << 30) / row["time_us"] / 1e3 * 30 / 16)
    assert row["time_us"] < 6_000  # a plain ring takes seven times as long
    switch = rows(capsys, "all-reduce", "--fabric", "switch:8", "-b", "1M")[0]
    assert (switch["algorithm"], switch["time_us_p05"], switch["outside"]) == ("ring", None, ["fabric"])


@pytest.mark.parametrize("spec", ["switch:8", "dgx-h100:1"])
@pytest.mark.parametrize("op", OPS)
def test_every_operation_has_an_answer_without_an_algorithm(spec: str, op: str) -> None:
    box = fabric(spec)
    question = SimulationSpec(op, box)
    usual = usual_algorithm(question.collective(1 << 20), box)
    assert sweep(question, [usual], [1 << 20])["rows"][0]["time_us"] > 0
    by_nccl = spec.startswith("dgx") and op not in ("barrier", "scan", "exscan")
    assert (usual == "nccl-2-4") == (by_nccl or op == "send-recv")


def test_an_engine_that_is_named_gives_its_own_time(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("all-reduce", "--fabric", "dgx-h100:2", "-b", "64M")
    plain, named, busy = (rows(capsys, *asked, *more)[0] for more in ((), ("--engine", "events"), ("--alpha", "busy")))
    assert named["time_us"] == plain["witnesses"]["events"] == named["witnesses"]["events"]
    assert named["engine"] == "events"
    assert named["time_us_p50"] == plain["time_us"] != named["time_us"]
    assert busy["time_us"] == busy["witnesses"]["events"] > named["time_us"]


@pytest.mark.parametrize(
    ("knob", "slower"),
    [("transport=tcp", True), ("nic_rate=25GB/s", True), ("nic_rate=100GB/s", False), ("nic_latency_s=50us", True)],
)
def test_a_knob_of_the_fabric_moves_the_answer(knob: str, slower: bool) -> None:
    assert (p50(f"dgx-h100:2,{knob}") > p50("dgx-h100:2")) == slower


@pytest.mark.parametrize("algorithm", ["nccl-2-4", "ring"])
@pytest.mark.parametrize("size", [1 << 10, BYTES])
def test_more_faults_take_no_less_time(algorithm: str, size: int) -> None:
    lines = ("link * latency +5us", "link node1/nic0 rate 50%", "nic node0/nic2 rate 80%", "rank 3 slow 2x")
    times = [p50("dgx-h100:2", *lines[:count], algorithm=algorithm, size=size) for count in range(len(lines) + 1)]
    assert times == sorted(times)
    assert times[1] > times[0] * 1.01


def test_what_comes_and_goes_adds_its_own_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A pause of 100 ms is no longer on a machine whose NCCL is slower than an engine says."""
    asked = ("all-reduce", "--fabric", "dgx-h100:2", "-b", "64M", "--algorithm", "nccl-2-4,ring")
    pause = ("--fault", "nic node1/nic0 dead from 1us to 100ms")
    for healthy, paused in zip(rows(capsys, *asked), rows(capsys, *asked, *pause), strict=True):
        assert paused["time_us"] == pytest.approx(100_000 + healthy["time_us"], rel=0.01)
    late = rows(capsys, *asked, "--arrivals", "late:3=2ms")[0]
    assert late["time_us"] == pytest.approx(2_000 + late["after_last_us"])


def test_what_lasts_of_faults() -> None:
    lines = ["link node0/nic0 rate 50%", "link node1/nic0 flap 1ms every 10ms", "nic node2/nic0 dead from 1ms to 2ms"]
    box = apply(fabric("dgx-h100:4"), lines)
    kept = lasting(box)
    assert {each.value for each in kept.faults if each.field == "rate_factor"} == {0.5}
    assert len(kept.faults) < len(box.faults)
    assert lasting(kept).faults == kept.faults
    assert (without_rates(box).rate > 1e17).all()
    assert not without_rates(box).faults


def test_a_calibration_moves_the_answer_to_its_machine(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("all-reduce", "--fabric", "dgx-h100:2", "-b", "8K", "-e", "8K")
    prior, own = (rows(capsys, *asked, *more)[0] for more in ((), ("--calibration", "p5")))
    assert (own["calibration"], own["algorithm"]) == ("p5", "nccl-2-4@2.20")
    assert own["time_us_p95"] / own["time_us_p05"] < 0.7 * prior["time_us_p95"] / prior["time_us_p05"]
    strange = rows(capsys, "all-reduce", "--fabric", "dgx-a100:2", "-b", "8K", "--calibration", "p5")[0]
    assert "calibration" in strange["outside"]
    assert strange["calibration"] == "prior"


def test_the_tables_of_a_calibration_are_what_it_says(tmp_path: Path) -> None:
    """Times twice as long, in the file alone, make the answer nearly twice as long."""
    sizes = tuple(1 << power for power in range(13, 31, 2))
    rows_of = [{"name": "allreduce", "ranks": 16, "size": size, "time": 60 + size / 2.5e5} for size in sizes]
    table = tmp_path / "times.jsonl"
    table.write_text("\n".join(map(json.dumps, rows_of)))
    fitted, _ = ringwright.calibrate([str(table)], "dgx-h100:2", release="2.20", collective="all-reduce", name="mine")
    save(fitted, tmp_path / "mine.json")
    assert load(tmp_path / "mine.json") == fitted
    slow = dataclasses.replace(fitted.tables[0], times_s=tuple(2 * time_s for time_s in fitted.tables[0].times_s))
    one, two = (
        ringwright.simulate("all-reduce", "dgx-h100:2", size="64M", calibration=each).probable
        for each in (fitted, msgspec.structs.replace(fitted, tables=(slow,)))
    )
    assert one is not None
    assert two is not None
    assert one.p50_us == pytest.approx(60 + (64 << 20) / 2.5e5, rel=0.15)
    assert 1.7 < two.p50_us / one.p50_us < 2.2


def test_on_a_calibrated_fabric_the_librarys_programs_have_factors_of_it() -> None:
    held = load("p5")
    box = calibrated(fabric("dgx-h100:2"), held)
    run = ringwright.simulate("broadcast", "dgx-h100:2", size=1 << 20, calibration=held)
    program = ringwright.algorithm(usual_algorithm(Collective("broadcast", range(16), 1 << 20), box, held))
    made = program(Collective("broadcast", range(16), 1 << 20), box)
    mean, _ = factors(CALIBRATED_LIBRARY).at(run.time_s, simulate(made, without_rates(box)).time_s)
    assert run.probable is not None
    assert (run.probable.calibration, run.probable.own_software) == ("p5", True)
    assert run.probable.p50_us == pytest.approx(run.time_s * 1e6 * math.exp(mean))


def test_a_calibration_without_tables_says_the_times_of_its_fit() -> None:
    held = load("p5")
    measured = measured_calls(held, "efa")
    assert [each.call.op for each in measured] == ["all-reduce"]
    assert all(time_s > 0 for time_s in measured[0].times_s)
    box = fabric("dgx-h100:2")
    call = library_call(Collective("all-reduce", range(16), BYTES), box, {"release": "2.20"}, [BYTES], held)
    assert call is not None
    assert (call.transport, measured[0].call.transport) == ("efa", "efa")


@pytest.mark.sampled(3, "spec")
@pytest.mark.parametrize("spec", ["dgx-h100:1", "dgx-h100:16", "dgx-a100:8", "p4d:2", "polaris:8", "gb200-nvl72:1"])
@pytest.mark.parametrize("op", ["all-reduce", "all-gather", "all-to-all"])
def test_no_more_bytes_take_less_time(spec: str, op: str) -> None:
    box = fabric(spec)
    sizes = [box.n_ranks * 4 << power for power in range(0, 20, 2)]
    found = sweep(SimulationSpec(op, box), ["nccl-2-4"], sizes)["rows"]
    times = [row["time_us_p50"] for row in found]
    assert times == sorted(times)
    one = sweep(SimulationSpec(op, box), ["nccl-2-4"], [sizes[3]])["rows"][0]
    assert one["time_us_p50"] == pytest.approx(times[3], rel=1e-6)  # whatever else is asked


def test_a_program_that_no_library_has_runs_on_the_usual_costs() -> None:
    box = fabric("dgx-h100:2")
    collective = Collective("all-reduce", range(16), BYTES)
    usual = AskedFabric(box, box).usual(collective)
    assert usual.message_s
    assert (usual.rate <= box.rate).all()
    assert (usual.latency_s >= box.latency_s).all()
    slowed = apply(box, ["link * latency +20us"])
    assert AskedFabric(slowed, box).usual(collective).latency_s == pytest.approx(usual.latency_s + 20e-6)
    switch = fabric("switch:16")
    assert AskedFabric(switch, switch).usual(collective) is switch
    run = ringwright.simulate("all-reduce", box, algorithm="ring", size=BYTES)
    said = run.probable
    assert said is not None
    assert (said.model, said.outside) == ("corrected", ("program",))
    assert said.p05_us is not None
    assert said.p95_us is not None
    assert math.isclose(said.p95_us / said.p50_us, said.p50_us / said.p05_us, rel_tol=1e-9)
    assert run.time_s * 1e6 < said.witnesses["events"] < said.p95_us
    named = ringwright.simulate("all-reduce", box, algorithm="ring", size=BYTES, engine="events").probable
    assert named == said  # an engine's own time asked for beside it changes nothing
    staged = ringwright.algorithm("mvapich:buffers=gpu")(collective, box)
    plain, priced = (ringwright.simulate(staged, on) for on in (box, usual))
    assert plain.probable is not None
    assert plain.probable.witnesses["events"] == priced.time_s * 1e6 > plain.time_s * 1e6


def test_what_the_library_has_no_table_of_runs_with_its_own_software(capsys: pytest.CaptureFixture[str]) -> None:
    """A broadcast of NCCL: its costs are in the program, and the usual ones do not come on top."""
    row = rows(capsys, "broadcast", "--fabric", "dgx-h100:2", "-b", "1M")[0]
    assert (row["algorithm"], row["engine"], row["own_software"]) == ("nccl-2-4", "corrected", True)
    own = ringwright.simulate("broadcast", "dgx-h100:2", size=1 << 20)
    assert row["witnesses"]["events"] == own.time_s * 1e6
    box = fabric("dgx-h100:2")
    program = ringwright.algorithm("nccl-2-4")(Collective("broadcast", range(16), 1 << 20), box)
    quiet = simulate(program, without_rates(box))
    mean, sigma = factors(OF_LIBRARY).at(own.time_s, quiet.time_s)
    assert row["time_us_p50"] == pytest.approx(own.time_s * 1e6 * math.exp(mean))
    assert row["time_us_p95"] == pytest.approx(row["time_us_p50"] * math.exp(NINETY * sigma))
    assert factors(OF_LIBRARY) != factors(CALIBRATED_LIBRARY) != factors(USUAL) != factors(CALIBRATED)
    assert main(["simulate", "broadcast", "--fabric", "dgx-h100:2", "-b", "1M", "--algorithm", "nccl-2-4,mpich2"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "the library's own costs of messages" in told
    assert "the usual costs of infiniband between nodes (8 us a hop, 2 us a message, 85% of the NICs' rate)" in told
    assert main(["simulate", "all-reduce", "--fabric", "dgx-h100:2", "--ranks", "1", "-b", "1M"]) == 0
    assert "one rank alone has nobody to send to" in " ".join(capsys.readouterr().out.split())


def test_what_nothing_was_learnt_of_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    row = rows(capsys, "all-reduce", "--fabric", "dgx-h100:16,transport=tcp", "-b", "1M")[0]
    assert {"gpu", "release"} <= {*row["outside"]}
    amd = rows(capsys, "all-reduce", "--fabric", "mi300:1", "-b", "1M", "--algorithm", "nccl-2-4@2.20")[0]
    assert "gpu" in amd["outside"]
    main(["simulate", "all-reduce", "--fabric", "dgx-h100:16", "-b", "1M"])
    assert "extrapolated beyond them in the number of nodes" in " ".join(capsys.readouterr().out.split())


def test_a_transport_is_kept_by_our_file_and_refused_where_unknown(tmp_path: Path) -> None:
    from ringwright.formats.exports.topology_json import topology_json
    from ringwright.formats.sources.topology import read_topology
    from ringwright.ground.errors import InputError, UsageError

    assert fabric("polaris:2").transport == "slingshot"
    assert fabric("dgx-h100:2,transport=roce").transport == "roce"
    with pytest.raises(UsageError, match="token-ring"):
        fabric("dgx-h100:2,transport=token-ring")
    file = tmp_path / "box.json"
    file.write_bytes(topology_json(fabric("p4d:2")))
    assert read_topology(file).transport == "efa"
    file.write_text(file.read_text().replace('"efa"', '"token-ring"'))
    with pytest.raises(InputError, match="no transport"):
        read_topology(file)


def test_the_fastest_is_told_with_its_chance(capsys: pytest.CaptureFixture[str]) -> None:
    """What two calls of the library err by in common cancels: half the intervals overlap, and yet the order is sure."""
    asked = ["simulate", "all-reduce", "--fabric", "dgx-h100:2", "-b", "1K", "-e", "1G", "-f", "1048576"]
    assert main([*asked, "--algorithm", "nccl-2-4@2.27,nccl-2-4@2.27:algorithm=ring:protocol=simple", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    small, large = found["fastest"]
    assert (small["algorithm"], small["next"]) == ("nccl-2-4@2.27", "nccl-2-4@2.27:algorithm=ring:protocol=simple")
    by_name = {row["algorithm"]: row for row in found["rows"] if row["size_bytes"] == 1024}
    assert by_name[small["next"]]["time_us_p05"] < by_name[small["algorithm"]]["time_us_p95"]
    assert small["chance"] > 0.9
    assert 0.5 <= large["chance"] <= 1
    assert main([*asked, "--algorithm", "nccl-2-4@2.27,nccl-2-4@2.28", "--json"]) == 0
    alike = json.loads(capsys.readouterr().out)["fastest"][1]
    assert alike["chance"] < 0.75  # NCCL chooses the same in both: nobody can tell
    assert main([*asked, "--algorithm", "nccl-2-4@2.27,nccl-2-4@2.28"]) == 0
    assert "?" in capsys.readouterr().out
    assert main([*asked, "--algorithm", "nccl-2-4,ring", "--engine", "events", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fastest"] == []


def test_chances_of_calls_together() -> None:
    """Two calls alike differ by their scatter alone; with tables of one, it moves and narrows."""
    box = fabric("dgx-h100:2")
    collective = Collective("all-reduce", range(16), BYTES)
    call = library_call(collective, box, {"release": "2.20"}, [1 << 20, BYTES])
    assert call is not None
    both = joint([call, call])
    above, sigma = both.apart(np.array([1, 3]))
    assert above[0, 1] == pytest.approx(0, abs=1e-9)
    assert sigma[0, 1] == pytest.approx(math.sqrt(2 * both.scatter[1]), rel=0.05)
    assert sigma[0, 1] < math.sqrt(2 * both.covariance[1, 1])
    assert chance(0.0, 1.0) == pytest.approx(0.5)
    assert chance(1.6449, 1.0) == pytest.approx(0.95, abs=1e-4)


def test_judged_choices_are_counted_by_how_far_apart_they_are() -> None:
    """Tables that are what the model says, of one and two nodes: all pairs far apart are decided, and right."""
    boxes = [fabric(f"dgx-h100:{nodes}") for nodes in (1, 2, 8)]
    calls = []
    for box in boxes:
        sizes = [1 << 20, 1 << 24, 1 << 28]
        call = library_call(Collective("all-reduce", range(box.n_ranks), 1 << 20), box, {"release": "2.20"}, sizes)
        assert call is not None
        calls.append(dataclasses.replace(call, owner="here", table=box.name))
    times = [tuple(each.p50_s for each in row) for row in expected(calls)]
    truth = [MeasuredCall(call, time_s) for call, time_s in zip(calls, times, strict=True)]
    wide, far = choices(truth, {}, shipped())
    assert wide["pairs"] >= far["pairs"] > 0
    assert wide["right"] == far["right"] == 1
    backwards = [
        MeasuredCall(call, tuple(1 / time_s for time_s in row)) for call, row in zip(calls, times, strict=True)
    ]
    assert choices(backwards, {}, shipped())[0]["right"] == 0
