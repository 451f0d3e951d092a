"""How the axes of a job, or of a single reduction, lie on a machine."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import ringwright
from ringwright.calls.placed_reductions import placed_reductions, reduction_s
from ringwright.calls.rank_permutation import renumbered
from ringwright.cli import main
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import EXIT_USAGE, UsageError
from ringwright.jobs import model_job, placements
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import answer

FABRIC = "dgx-h100:2"


def question(parallel: str = "tp2,pp2", gpus: int = 16) -> model_job.GeneratedJobSpec:
    return model_job.GeneratedJobSpec(WorkloadSpec("gpt2-medium", gpus, parallel))


# ------------------------------------------------------------------------------------------------------- other numbers
def test_a_machine_under_other_numbers_has_the_same_links() -> None:
    topology = ringwright.fabric("dgx-a100:2")
    of = np.random.default_rng(1).permutation(16)
    other = renumbered(topology, of)
    assert [other.label(rank) for rank in range(16)] == [topology.label(int(rank)) for rank in of]
    assert other.hosts is not None
    assert topology.hosts is not None
    assert other.hosts.tolist() == topology.hosts[of].tolist()
    pairs = [(a, b) for a in range(16) for b in range(16) if a != b]
    src, dst = np.array(pairs).T
    starts, links = other.routes(src, dst)
    wanted, before = topology.routes(of[src], of[dst])
    assert starts.tolist() == wanted.tolist()
    assert links.tolist() == before.tolist()
    assert renumbered(topology, range(16)) is topology


def test_numbers_twice_or_beyond_are_refused() -> None:
    topology = ringwright.fabric("switch:4")
    for of in ((0, 0), (4,), (-1, 2)):
        with pytest.raises(UsageError, match="at most once"):
            renumbered(topology, of)


def test_a_slow_rank_stays_the_same_device() -> None:
    topology = apply(ringwright.fabric(FABRIC), ["rank 3 slow 2x"])
    other = renumbered(topology, [3, 0, 1, 2])
    assert [fault.target for fault in other.faults if fault.kind == "rank"] == [0]


# -------------------------------------------------------------------------------------------------------------- the jobs
def test_a_host_that_is_numbered_backwards_changes_no_step() -> None:
    topology = ringwright.fabric(FABRIC)
    plain = answer(model_job.made(question(), topology), "none").step_s
    backwards = renumbered(topology, [*range(8, 16), *range(8)])
    assert answer(model_job.made(question(), backwards), "none").step_s == pytest.approx(plain, rel=1e-9)


def test_placements_are_ranked_and_that_of_the_ranks_own_numbers_is_among_them() -> None:
    topology = ringwright.fabric(FABRIC)
    result = placements.placed(lambda each: model_job.made(question("tp8"), each), topology, "none", 1)
    rows = result["rows"]
    assert isinstance(rows, list)
    assert [row["as_numbered"] for row in rows] == [True]
    assert rows[0]["matrix"] == {"dp": {"node": 2}, "tp": {"gpu": 8}}
    result = placements.placed(lambda each: model_job.made(question("tp8"), each), topology, "none")
    rows = result["rows"]
    assert isinstance(rows, list)
    assert result["placements"] == len(rows) == 2
    assert [row["step_us"] for row in rows] == sorted(row["step_us"] for row in rows)
    first, second = rows  # of so small a model gradients cost more than activations
    assert second["as_numbered"]
    assert first["by_role"]["dp"]["exposed_us"] < 0.1 * second["by_role"]["dp"]["exposed_us"]
    assert first["by_role"]["tp"]["busy_us"] > second["by_role"]["tp"]["busy_us"]
    for row in rows:
        assert sorted(row["devices"]) == list(range(16))
    assert {rank // 8 for rank in first["devices"][:8]} == {0, 1}


def test_who_interrupts_gets_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupted(job: object, policy: str) -> object:
        calls.append(policy)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answer(job, policy)  # type: ignore[arg-type]

    monkeypatch.setattr(placements, "answer", interrupted)
    made = lambda each: model_job.made(question("tp8"), each)  # noqa: E731
    result = placements.placed(made, ringwright.fabric(FABRIC), "none")
    assert result["stopped"] is True
    assert len(result["rows"]) == 1  # type: ignore[arg-type]


def test_the_command_prints_placements(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["workload", "gpt2-medium", "--gpus", "16", "--parallel", "tp8", "--place", "--fabric", FABRIC]
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == placements.SCHEMA
    assert told["levels"] == {"node": 2, "gpu": 8}
    assert {"matrix", "step_us", "step_us_p05", "step_us_p95", "exposed_comm_us", "devices"} <= told["rows"][0].keys()
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert "as numbered" in told
    assert "gpu 8" in told


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--place", "--fabric", "dgx-h100:1"], "16 ranks do not fit"),
        (["--fabric", FABRIC], "--fabric is for placements"),
        (["--most", "3"], "--most is for placements"),
        (["--place", "--most", "0"], "--most is 0"),
        (["--place", "--mode", "serve"], "one pass of serving"),
        (["--place", "--ranks", "8"], "--ranks is not for placements"),
    ],
)
def test_what_the_command_refuses(more: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "gpt2-medium", "--gpus", "16", "--parallel", "tp8", *more]) == EXIT_USAGE
    assert why in capsys.readouterr().err


def test_one_gpu_has_nothing_to_place() -> None:
    with pytest.raises(UsageError, match="one GPU has nothing to place"):
        placements.placed(lambda each: model_job.made(question("", 1), each), ringwright.fabric("dgx-h100:1"), "none")


# ------------------------------------------------------------------------------------------------------- one reduction
def test_placements_of_a_reduction_differ_by_the_ratio_of_the_links() -> None:
    machine = ringwright.fabric(
        "rail-optimised:2,gpus=4,gpus_per_nic=4,nvlink_rate=300GB/s,nic_rate=100Gb/s,layout=switch"
    )
    rows = placed_reductions(machine, (2, 4), [0], 1 << 28)
    assert [row.matrix for row in rows] == [((1, 2), (2, 2)), ((2, 1), (1, 4))]
    # Within a node 300 GB/s a GPU; across, four groups share a port of 12.5.
    assert rows[1].single_s / rows[0].single_s == pytest.approx(4 * 300 / 12.5, rel=0.01)
    assert rows[0].gain == rows[1].gain == 1.0
    wide = placed_reductions(machine, (8,), [0], 1 << 28)
    assert 1.5 < wide[0].gain < 1.75  # RS, AR, AG sends n through each port, one ring 2 (p-1)/p n
    assert reduction_s(machine, wide[0].matrix, [0], 1 << 28) == wide[0].seconds
    assert reduction_s(machine, wide[0].matrix, [0], 1 << 28, length=1) == wide[0].single_s


def test_an_axis_of_one_reduces_nothing() -> None:
    rows = placed_reductions(ringwright.fabric("switch:4"), (4, 1), [1], 1 << 20)
    assert [(row.seconds, row.single_s, row.gain) for row in rows] == [(0.0, 0.0, 1.0)]


def test_a_job_may_leave_ranks_of_the_machine_out() -> None:
    topology = replace(ringwright.fabric("dgx-h100:3"))
    levels, every = placements.placements(model_job.workload(question("tp8")), topology)
    assert levels.sizes == (2, 8)
    assert len(every) == 2
    assert all(sorted(each.devices.tolist()) == list(range(16)) for each in every)
