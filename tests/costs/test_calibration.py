"""Calibrations: what the fit finds, what the file keeps, what a topology becomes, what the closed form obeys."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from ringwright.cli import main
from ringwright.costs.calibration import (
    Calibration,
    LinkClassCosts,
    MeasuredTimes,
    calibrated,
    fit,
    load,
    names,
    ratio_error,
    save,
    times_s,
)
from ringwright.costs.nccl import placed
from ringwright.costs.nccl.timing import COLUMNS, NcclOverride, stages
from ringwright.fabrics import fabric
from ringwright.ground.errors import InputError, UsageError

SIZES = tuple(1 << power for power in range(3, 31))
TRUTH = Calibration(
    "truth",
    "dgx-a100:2",
    "2.18",
    LinkClassCosts(1.2e-6, 1e-7, 220e9),
    LinkClassCosts(6e-6, 2e-6, 180e9),
    "made up",
    "2024",
)


def measured(op: str = "all-reduce", spec: str = "dgx-a100:2", release: str = "2.18") -> MeasuredTimes:
    blank = MeasuredTimes(op, spec, release, SIZES, (1.0,) * len(SIZES))
    return dataclasses.replace(blank, times_s=tuple(times_s(TRUTH, blank).tolist()))


def test_the_fit_finds_what_made_the_times() -> None:
    parts = [measured(), measured("all-gather")]
    found = fit(parts, name="again", source="here", date="2024")
    assert found.error < 0.02
    assert found.inside is not None
    assert found.outside is not None
    assert found.inside.rate_bytes_per_s == pytest.approx(220e9, rel=0.1)
    assert found.outside.rate_bytes_per_s == pytest.approx(180e9, rel=0.1)
    assert found.outside.latency_s == pytest.approx(6e-6, rel=0.5)


def test_the_fit_is_deterministic_and_robust() -> None:
    clean = measured()
    broken = dataclasses.replace(clean, times_s=tuple(10 * t if i == 20 else t for i, t in enumerate(clean.times_s)))
    assert fit([broken]) == fit([broken])
    others = [place for place in range(len(SIZES)) if place != 20]
    assert ratio_error(times_s(fit([broken]), clean.at(others)), clean.at(others).times_s) < 0.03


def test_no_rate_is_beyond_the_data_sheet() -> None:
    fast = dataclasses.replace(measured(), times_s=tuple(t / 10 for t in measured().times_s))
    found = fit([fast])
    assert found.outside is not None
    assert found.outside.rate_bytes_per_s <= 8 * 25e9 * (1 + 1e-9)


def test_one_node_has_no_outside_and_one_gpu_no_inside() -> None:
    assert fit([measured(spec="dgx-a100:1")]).outside is None
    assert fit([measured(spec="dgx-a100:2x1")]).inside is None
    with pytest.raises(UsageError, match="no measured size"):
        fit([])


def test_ratio_error() -> None:
    assert ratio_error([2.0, 0.5], [1.0, 1.0]) == pytest.approx(1.0)
    assert ratio_error([1.0], [1.0]) == 0


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    found = fit([measured()], name="x", source="s", date="2024")
    save(found, tmp_path / "x.json")
    assert load(tmp_path / "x.json") == found
    assert json.loads((tmp_path / "x.json").read_text())["schema"] == "ringwright.calibration/1"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "other/1"}', '{"schema": "ringwright.calibration/1", "name": 3}']
)
def test_bad_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError):
        load(tmp_path / "x.json")


def test_a_link_that_cannot_be(tmp_path: Path) -> None:
    save(TRUTH, tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text().replace("180000000000.0", "0")
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match="not a link"):
        load(tmp_path / "x.json")
    with pytest.raises(UsageError, match="no calibration"):
        load("never-heard-of")


@pytest.mark.parametrize("name", names())
def test_shipped_calibrations(name: str) -> None:
    found = load(name)
    assert found.name == name
    assert "(" in found.source  # the licence stands with it
    assert found.sizes_bytes
    assert 0 < found.error < 0.15
    placed(found.fabric)


def test_a_topology_gets_the_numbers() -> None:
    top = calibrated(fabric("dgx-a100:2"), TRUTH)
    assert TRUTH.inside is not None
    assert TRUTH.outside is not None
    for rank, link, share in ((1, TRUTH.inside, 1), (8, TRUTH.outside, 8)):
        _, way = top.routes(np.array([0]), np.array([rank]))
        assert top.latency_s[way].sum() == pytest.approx(link.latency_s)
        assert top.rate[way].min() == pytest.approx(link.rate_bytes_per_s / share)
        slowest = top.classes[top.link_class[way[top.rate[way].argmin()]]]
        assert top.message_s[slowest] == link.message_s
    assert "made up" in top.provenance
    assert set(top.occupying) == {"pcie", "nic", "spine"} & {*top.message_s}


def test_a_topology_without_nodes_or_network() -> None:
    one = calibrated(fabric("switch:4"), TRUTH)
    assert one.n_ranks == 4
    single = calibrated(fabric("dgx-a100:1"), TRUTH)
    assert set(single.message_s) <= {"nvlink"}
    assert not single.occupying


def test_engines_take_message_costs_where_adding_takes_time() -> None:
    from ringwright.algorithms.blocks.ring import ring
    from ringwright.engines.choose import simulate
    from ringwright.model.collective import Collective

    top = calibrated(dataclasses.replace(fabric("dgx-a100:2"), reduce_rate=1e12), TRUTH)
    program = ring(Collective("all-reduce", range(16), 1 << 20), top)
    assert simulate(program, top, "events").time_s > simulate(program, fabric("dgx-a100:2"), "events").time_s


def test_polaris_is_a_fabric() -> None:
    top = fabric("polaris:2")
    _, way = top.routes(np.array([0]), np.array([4]))
    assert top.rate[way].min() == 25e9
    assert top.n_ranks == 8


@pytest.mark.parametrize(
    "spec", ["dgx-a100:1", "dgx-a100:2", "dgx-h100:4", "polaris:8", "gb200-nvl72:2", "dgx-h100:2x1"]
)
@pytest.mark.parametrize("op", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
def test_time_grows_with_size_and_with_every_number(spec: str, op: str) -> None:
    kind, system = placed(spec)
    machine = np.array([1, 1e-6, 1e-7, 1 / 200e9, 5e-6, 1e-6, 1 / 100e9])
    for size in (8, 1 << 16, 1 << 24, 1 << 30):
        made = stages(op, size, kind, system, "2.21")
        here = made.time_s(machine)
        assert all(value >= 0 for row in (made.serial, *made.parallel) for value in row)
        assert all(
            made.time_s(machine * (np.arange(len(COLUMNS)) == place) * 1 + machine) >= here for place in range(7)
        )
    times = [stages(op, size, kind, system, "2.21").time_s(machine) for size in (1 << 26, 1 << 28, 1 << 30)]
    assert times == sorted(times)


@pytest.mark.parametrize("spec", ["dgx-a100:1", "dgx-a100:4", "polaris:8"])
@pytest.mark.parametrize("op", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
def test_large_sizes_are_never_below_the_bandwidth_bound(spec: str, op: str) -> None:
    kind, system = placed(spec)
    size, inside, outside = 1 << 30, 200e9, 50e9
    time_s = stages(op, size, kind, system, "2.18").time_s(np.array([1, 0, 0, 1 / inside, 0, 0, 1 / outside]))
    p, nodes = system.ranks, system.nodes
    leaves = {"all-reduce": 2 * (nodes - 1) / nodes, "all-to-all": (p / nodes) * (nodes - 1) / nodes}
    least = leaves.get(op, (nodes - 1) / nodes) * size / outside
    least = max(least, (2 if op == "all-reduce" else 1) * (p - 1) / p * size / inside if nodes == 1 else 0)
    assert time_s >= least * (1 - 1e-9)


def test_an_environment_forces_the_choice() -> None:
    kind, system = placed("dgx-h100:4")
    made = stages("all-reduce", 1 << 30, kind, system, "2.26", NcclOverride("ring", "ll128", 32))
    assert made.choice is not None
    assert (made.choice.algorithm, made.choice.protocol, made.choice.channels_used) == ("ring", "ll128", 32)


@pytest.mark.parametrize("spec", ["", "nobody:2", "dgx-a100:0", "dgx-a100:2x9", "dgx-a100:2x2x2", "dgx-a100:-1"])
def test_specs_that_name_no_box(spec: str) -> None:
    with pytest.raises(UsageError):
        placed(spec)


def test_what_has_no_timing() -> None:
    kind, system = placed("dgx-a100:2")
    with pytest.raises(UsageError, match="no timing"):
        stages("broadcast", 1 << 20, kind, system, "2.18")


def table_text() -> str:
    header = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
    rows = "".join(
        f"{size} {size // 4} float sum -1 {time * 1e6:.2f} 0 0 0 {time * 1e6:.2f} 0 0 0\n"
        for size, time in zip(SIZES, measured().times_s, strict=True)
    )
    return "# Collective test starting: all_reduce_perf\n" + header + rows


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, target = tmp_path / "run.txt", tmp_path / "mine.json"
    table.write_text(table_text())
    command = ["calibrate", str(table), "--fabric", "dgx-a100:2", "--release", "2.18", "-o", str(target)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "outside" in shown
    assert str(target) in shown
    assert load(target).name == "mine"
    assert main(command) == 2  # it exists
    assert main([*command, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "ringwright.calibration/1"
    assert main(["calibrate", str(table), "--fabric", "dgx-a100:2"]) == 2  # no release
    assert "--release" in capsys.readouterr().err
    assert main(["calibrate", str(tmp_path), "--fabric", "nobody:2", "--release", "2.18"]) == 2


def test_the_sample_is_the_table_that_a_shipped_calibration_was_fitted_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["calibrate", "--sample", "--fabric", "dgx-h100:2", "--release", "2.20"]
    assert main([*command, "--json"]) == 0
    fitted, shipped = json.loads(capsys.readouterr().out), load("p5")
    assert fitted["sizes_bytes"] == [1 << power for power in range(3, 35)]
    assert fitted["operations"] == ["all-reduce"]
    assert fitted["outside"]["rate_bytes_per_s"] == pytest.approx(shipped.outside.rate_bytes_per_s, rel=0.01)
    assert fitted["outside"]["latency_s"] == pytest.approx(shipped.outside.latency_s, rel=0.1)
    assert fitted["inside"]["rate_bytes_per_s"] == pytest.approx(shipped.inside.rate_bytes_per_s, rel=0.1)
    assert main([*command[:2], "table.txt", *command[2:]]) == 2
    assert "--sample reads the sample alone" in capsys.readouterr().err
