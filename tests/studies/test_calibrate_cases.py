"""``calibrate`` on folders of cases: the release, what was forced, the system and the transport come from ``*_cases.csv``."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import ringwright
from ringwright.calls.calibrate import calibrate
from ringwright.ground.errors import UsageError
from ringwright.reports.calls import calibrated as report

HEAD = "case,system,gpu,nodes,gpus_per_node,ranks,collective,intra_node,inter_node,software,settings,source"
SIZES = tuple(1 << power for power in range(16, 31, 2))


def folder(tmp_path: Path, *cases: tuple[str, str, str, str, float]) -> str:
    """Write cases of (name, system, transport, settings, GB/s) and their times; return the path of the times."""
    rows, times = [HEAD], ["case,bytes,time_us"]
    for name, system, transport, settings, rate in cases:
        words = f"{name},{system},A100,2,8,16,all_reduce,NVSwitch,8 x 200 Gb/s {transport},NCCL 2.18.3,{settings},ours"
        rows.append(words)
        times += [f"{name},{size},{60 + size / rate / 1e3}" for size in SIZES]
    (tmp_path / "own_cases.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "own_times.csv").write_text("\n".join(times) + "\n")
    return str(tmp_path / "own_times.csv")


def test_releases_settings_and_transport_are_read(tmp_path: Path) -> None:
    forced = "NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MIN_NCHANNELS=8"
    path = folder(tmp_path, ("a", "ours", "RoCE", forced, 100.0))
    fitted, sizes = calibrate([path], "dgx-a100:{n}")
    assert (fitted.release, fitted.transport, len(sizes)) == ("2.18", "roce", len(SIZES))
    held = fitted.tables[0].forced
    assert held is not None
    assert (held.algorithm, held.protocol, held.channels) == ("ring", "simple", 8)


def test_of_several_systems_one_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path, ("a", "ours", "RoCE", "", 100.0), ("b", "theirs", "RoCE", "", 50.0))
    with pytest.raises(UsageError, match="2 systems: ours, theirs"):
        calibrate([path], "dgx-a100:{n}")
    fast, slow = (calibrate([path], "dgx-a100:{n}", system=name)[0] for name in ("ours", "theirs"))
    assert fast.outside is not None
    assert slow.outside is not None
    assert fast.outside.rate_bytes_per_s > 1.5 * slow.outside.rate_bytes_per_s
    with pytest.raises(UsageError, match="no table is of system 'nobody'"):
        calibrate([path], "dgx-a100:{n}", system="nobody")


def test_of_several_transports_one_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path, ("a", "ours", "RoCE", "", 100.0), ("b", "ours", "RoCE", "NCCL over TCP", 10.0))
    with pytest.raises(UsageError, match="roce and tcp") as refused:
        calibrate([path], "dgx-a100:{n}")
    assert "--transport roce" in refused.value.remedy
    slow, sizes = calibrate([path], "dgx-a100:{n}", transport="tcp")
    assert (slow.transport, len(sizes)) == ("tcp", len(SIZES))
    assert slow.tables[0].times_s[-1] == pytest.approx(60e-6 + SIZES[-1] / 10e9)


def test_a_poor_fit_is_said(tmp_path: Path) -> None:
    good, poor = (
        (("a", "ours", "RoCE", "", 100.0),),
        (("a", "ours", "RoCE", "", 150.0), ("b", "ours", "RoCE", "", 10.0)),
    )
    for cases, said in ((good, False), (poor, True)):
        fitted, sizes = calibrate([folder(tmp_path, *cases)], "dgx-a100:{n}")
        out = io.StringIO()
        report.write(fitted, sizes, out)
        assert ("poor fit" in out.getvalue()) == said


@pytest.mark.parametrize(("fabric", "ranks", "rate"), [("mi300:1", 8, 150e3), ("ndv2:2", 16, 5e3)])
def test_machines_joined_link_by_link_are_calibrated(tmp_path: Path, fabric: str, ranks: int, rate: float) -> None:
    """A table of rccl-tests, or of an NDv2, moves the most probable time to what was measured; ``rate`` in bytes/us."""
    table = tmp_path / "times.jsonl"
    rows = [{"name": "allreduce", "ranks": ranks, "size": size, "time": 40 + size / rate} for size in SIZES]
    table.write_text("\n".join(map(json.dumps, rows)))
    fitted, _ = calibrate([str(table)], fabric, release="2.20", collective="all-reduce", name="mine")
    assert fitted.error < 0.25
    said = ringwright.simulate(
        "all-reduce", fabric, algorithm="nccl-2-4@2.20", size=SIZES[-2], calibration=fitted
    ).probable
    assert said is not None
    assert said.p50_us == pytest.approx(40 + SIZES[-2] / rate, rel=0.2)
    assert "size" not in said.outside
