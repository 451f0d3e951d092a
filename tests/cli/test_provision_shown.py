"""``ringwright provision`` on a terminal and as JSON: every row readable at any width, every error with the next command."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ringwright.advise import networks
from ringwright.advise.provision.document import ProvisionDocument
from ringwright.advise.provision.prices import read_prices
from ringwright.advise.provision.question import ProvisionSpec
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.reports.steps import provisioned

pytestmark = pytest.mark.once  # whole jobs, many times: with the compiled loops alone


@pytest.fixture(scope="module")
def document() -> ProvisionDocument:
    spec = ProvisionSpec(["resnet-18", "mixtral-8x7b"], prices=read_prices(["nic=2,port=1"]))
    return networks.provisioned(spec, [fabric("leaf-spine:4"), fabric("dgx-h100:1")])[0]


def shown(document: ProvisionDocument, width: int) -> str:
    out = io.StringIO()
    provisioned.write(document, out, width=width)
    return out.getvalue()


@pytest.mark.sampled(2, "width")
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(document: ProvisionDocument, width: int) -> None:
    text = shown(document, width)
    assert all(len(line) <= width for line in text.splitlines())
    for heading in (
        "Network",
        "Step in ms",
        "One step less",
        "One failed optic",
        "Bursts of a NIC",
        "Not answered",
        "Assumed",
    ):
        assert any(line.startswith(heading) for line in text.splitlines()), heading


def test_what_is_shown_is_what_was_simulated(document: ProvisionDocument) -> None:
    row = document.rows[0]
    text = " ".join(shown(document, 200).split())
    assert row.nic_gbs is not None
    assert row.headroom is not None
    assert f"{row.nic_gbs * 8:.4g} (400)" in text
    assert row.headroom.fault in text
    assert f"{row.cost:,.6g}" in text
    assert f"{(row.step_us or 0) / 1e3:.2f}" in text
    for edge in row.edges or ():
        if edge.step_us is not None:
            assert f"{edge.step_us / 1e3:.2f}" in text
    assert text.startswith("does not fit, mixtral-8x7b on leaf-spine:4: no simple form fits 4 GPUs")
    assert "resnet-18 on dgx-h100:1: dgx-h100:1 has no NIC" in text


def test_json_is_one_object_and_options_reach_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["provision", "gpt2-small", "--fabric", "switch:2", "--json", "--parallel", "zero1"]
    more = ["--micro-batches", "2", "--micro-batch-size", "2", "--seq", "1024", "--dtype", "float16", "--gpu", "h200"]
    told = json.loads(_answered(capsys, [*words, "--within", "10%"]))
    assert told["schema"] == "ringwright.provision/1"
    assert told["within"] == 0.1
    (usual,) = told["rows"]
    assert usual["step_us"] <= usual["most_us"]
    assert usual["most_us"] == pytest.approx(1.1 * usual["reference_us"])
    assert usual["buffers"]["buffer_bytes"] == usual["buffer_bytes"]
    words[3:4] = ["switch:3", "--gpus", "2"]
    asked = json.loads(_answered(capsys, [*words, *more, "--algorithm", "ring", "--policy", "p3"]))["rows"][0]
    assert (usual["parallel"], usual["gpus"], usual["micro_batches"], usual["samples"]) == ("zero1", 2, 1, 2)
    assert (asked["gpus"], asked["micro_batches"], asked["samples"]) == (2, 2, 8)
    assert usual["device_memory_bytes"] < asked["device_memory_bytes"]
    assert usual["reference_us"] != asked["reference_us"]
    fitted = json.loads(_answered(capsys, [*words, "--fit", "h100-megatron"]))["rows"][0]
    assert fitted["reference_us"] != usual["reference_us"]


def _answered(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["resnet-18", "--fabric", "leaf-spine:4", "--within", "0"], 2, "--within 5%"),
        (["resnet-18", "--fabric", "leaf-spine:4", "--within", "200%"], 2, "200 % of the reference"),
        (["resnet-18", "--fabric", "leaf-spine:4,transport=smoke"], 2, "transport is infiniband, roce"),
        (["resnet-18", "--fabric", "leaf-spline:4"], 2, "leaf-spine"),
        (["resnet-18"], 2, "no fabric is named"),
        (["resnet-18", "--fabric", "dgx-h100:1"], 2, "there is no network to size"),
        (["resnet-18", "--fabric", "leaf-spine:4", "--gpus", "5"], 2, "5 ranks do not fit on leaf-spine:4"),
        (["resnet-18", "--fabric", "leaf-spine:4", "--policy", "nope"], 2, "no system is called 'nope'"),
        (["resnet-18", "--fabric", "leaf-spine:4", "--mode", "serve"], 2, "resnet-18:prefill resnet-18:decode"),
        (["resnet-18", "--fabric", "leaf-spine:4", "--prices", "none.toml"], 2, "neither a file nor KEY=VALUE"),
    ],
)
def test_errors_say_what_to_do(capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str) -> None:
    assert main(["provision", *words]) == code
    assert told in capsys.readouterr().err


def test_a_damaged_recording_is_no_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.json").write_text('{"traceEvents": [')
    assert main(["provision", str(tmp_path / "cut.json"), "--fabric", "switch:4"]) == 3
    assert "try:" in capsys.readouterr().err


def test_a_second_fabric_of_a_verb_that_takes_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "all-reduce", "--fabric", "switch:4", "--fabric", "switch:8"]) == 2
    told = capsys.readouterr().err
    assert "--fabric specified multiple times" in told
    assert "provision takes several" in told
    assert main(["simulate", "all-reduce", "--fabrik", "switch:4"]) == 2
    assert "simulate --help" in capsys.readouterr().err
