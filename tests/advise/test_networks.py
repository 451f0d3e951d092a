"""Provisioning with the draws of advice, and its networks as fabrics."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringwright.advise import networks
from ringwright.advise.exported import AdvisedFile
from ringwright.advise.provision.asked import ProvisionSpec
from ringwright.advise.provision.document import ProvisionDocument
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.formats.sources.topology import read_topology
from ringwright.ground.errors import OutputError
from ringwright.reports.steps.provisioned import write

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def told() -> tuple[ProvisionDocument, list[AdvisedFile]]:
    return networks.provisioned(ProvisionSpec(["resnet-18"], 0.3), [fabric("switch:2,rate=400Gb/s")], drawn=True)


def test_what_is_drawn_lies_about_what_is_simulated(told: tuple[ProvisionDocument, list[AdvisedFile]]) -> None:
    (row,) = told[0].rows
    low, middle, high = row.longer_p05, row.longer_p50, row.longer_p95
    assert low is not None
    assert middle is not None
    assert high is not None
    assert row.step_us is not None
    assert row.reference_us is not None
    simulated = row.step_us / row.reference_us - 1
    assert low <= middle <= high
    assert low < high, "what is not known moves the step"
    assert low - 0.01 <= simulated <= high + 0.01
    out = io.StringIO()
    write(told[0], out, width=200)
    assert f"{100 * low:+.1f} to {100 * high:+.1f} %" in out.getvalue()


def test_the_network_comes_back(told: tuple[ProvisionDocument, list[AdvisedFile]], tmp_path: Path) -> None:
    result, files = told
    (row,) = networks.write(files, result, tmp_path).rows
    assert row.export is not None
    assert row.export == str(tmp_path / "resnet-18-on-switch-2-rate-400Gb-s.json")
    again = read_topology(row.export)
    assert row.nic_gbs is not None
    assert again.n_ranks == 2
    assert np.isclose(again.rate.max(), row.nic_gbs * 1e9)
    assert (
        main(["simulate", "all-reduce", "--topology", row.export, "--algorithm", "ring", "-b", "1M", "-e", "1M"]) == 0
    )


def test_a_network_that_differs_is_not_written(
    told: tuple[ProvisionDocument, list[AdvisedFile]], tmp_path: Path
) -> None:
    result, (file,) = told
    other = replace(file, data=file.data.replace(b'"n": 2', b'"n": 1'))
    assert other.data != file.data
    with pytest.raises(OutputError, match="read back"):
        networks.write([other], result, tmp_path)
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith(".")] == []


def test_a_folder_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provision", "resnet-18", "--fabric", "switch:2", "-o", str(tmp_path)]) == 2
    assert "--force" in capsys.readouterr().err
