"""A link that is down for good ends the job, and that is the answer: how, when, in which step, in the library's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.ground.errors import EXIT_INFEASIBLE, InfeasibleError
from ringwright.reports import notebook as pictures

pytestmark = pytest.mark.once

DEAD = "nic node0/nic1 dead at 0ms"
IB = "NET/IB: Got completion with status=12 (IBV_WC_RETRY_EXC_ERR): transport retry counter exceeded"
XID = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"


def rows(capsys: pytest.CaptureFixture[str], *words: str, code: int = EXIT_INFEASIBLE) -> list[dict[str, Any]]:
    assert main(["simulate", *words, "--json"]) == code
    told: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return told


def collective(fabric: str, fault: str, *more: str) -> list[str]:
    return ["all-reduce", "--fabric", fabric, "-b", "1M", "-e", "1M", "--fault", fault, *more]


def test_a_dead_nic_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, *collective("dgx-h100:2", DEAD))
    (well,) = rows(capsys, "all-reduce", "--fabric", "dgx-h100:2", "-b", "1M", "-e", "1M", code=0)
    assert row["time_us"] is None
    assert row["declined"] == "the job ends: ib gives up after 7 retries"
    assert row["healthy_us"] == well["time_us"]
    assert well["ends"] is None
    ends = row["ends"]
    assert (ends["kind"], ends["between"], ends["prints"]) == ("given-up", "node0/gpu1 to node1/gpu1", IB)
    assert "NCCL_IB_RESILIENCY_PORT_FAILOVER=1" in ends["failover"]
    (packets,) = rows(capsys, *collective("dgx-h100:2", DEAD, "--engine", "packets"))
    assert packets["ends"]["at_us"] == pytest.approx(ends["at_us"], rel=0.01)
    assert packets["ends"]["failover"] == ends["failover"]


def test_beside_others_that_go_on_it_is_one_row_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    ring, nccl = rows(capsys, *collective("dgx-h100:2", DEAD, "--algorithm", "ring,nccl-2-4"), code=0)
    assert ring["time_us"] > 0
    assert ring["ends"] is None
    assert nccl["ends"]["kind"] == "given-up"
    assert main(["simulate", *collective("dgx-h100:2", DEAD, "--algorithm", "ring,nccl-2-4")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "The job ends nccl-2-4 at 1 MiB: the job ends after 532.7 ms: ib gives up after 7 retries" in out


@pytest.mark.parametrize(
    ("fabric", "fault", "kind", "prints", "at_s"),
    [
        ("switch:4,transport=tcp", "link rank3 dead", "given-up", "socketProgress: Connection closed", (900, 950)),
        ("switch:4,transport=srd", "link rank3 dead at 1us", "given-up", "NET/OFI: Request completed", (5, 20)),
        ("dgx-h100:2", "link node0/gpu1>node0/nvswitch dead at 5us", "dead-link", XID, (5e-6, 1e-3)),
        ("dgx-h100:1", "link node0/gpu1>node0/nvswitch dead", "dead-link", XID, (0, 1e-3)),
    ],
)
def test_each_transport_ends_in_its_own_words(
    capsys: pytest.CaptureFixture[str], fabric: str, fault: str, kind: str, prints: str, at_s: tuple[float, float]
) -> None:
    (row,) = rows(capsys, *collective(fabric, fault))
    assert row["ends"]["kind"] == kind
    assert row["ends"]["prints"].startswith(prints)
    assert row["ends"]["failover"] is None
    assert at_s[0] <= row["ends"]["at_us"] / 1e6 <= at_s[1]


@pytest.mark.parametrize(("at", "step"), [("0ms", 1), ("50ms", 3), ("1s", 31)])
def test_a_job_ends_in_the_step_that_meets_it(capsys: pytest.CaptureFixture[str], at: str, step: int) -> None:
    words = ["--model", "bert-large", "--gpus", "16", "--fabric", "dgx-h100:2", "--policy", "none"]
    (row,) = rows(capsys, *words, "--fault", f"nic node0/nic1 dead at {at}")
    assert (row["ends"]["step"], row["ends"]["prints"]) == (step, IB)
    since_s = {"0ms": 0.0, "50ms": 0.05, "1s": 1.0}[at]
    assert 0.53 < row["ends"]["at_us"] / 1e6 - since_s < 0.57  # a wait for the operation, and all retries


def test_a_replayed_recording_ends_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--sample", "--fabric", "dgx-h100:2", "--fault", DEAD]
    assert main(words) == EXIT_INFEASIBLE
    out = " ".join(capsys.readouterr().out.split())
    assert "none: in step 1, the job ends after" in out


def test_a_picture_says_that_nothing_can_be_drawn() -> None:
    with pytest.raises(InfeasibleError, match=r"the job ends after 532\.7 ms"):
        pictures.curves("all-reduce", "dgx-h100:2", sizes=["1M", "2M"], faults=DEAD)
