"""Fusion plans as buckets of DistributedDataParallel, and the policies that these cannot carry out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringwright.cli import main
from ringwright.formats.settings.ddp_buckets import ddp_plan, text
from ringwright.ground.errors import UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.schedulers.priority.p3 import p3
from ringwright.workloads.chain import ChainLayer, chain

MIB = 1 << 20
COSTS = LinkCosts(1e9)


def net() -> Workload:
    return chain(
        "net", [ChainLayer(0.1, 0.2, size * MIB // 4, name=f"l{at}") for at, size in enumerate((1, 2, 3, 8, 1))]
    )


def test_caps_are_the_sizes_of_the_buckets() -> None:
    plan = ddp_plan(pytorch_ddp(net(), COSTS, caps_mb=(1, 2)))
    assert plan["buckets"] == [["l4", "l3"], ["l2", "l1", "l0"]]
    assert plan["bucket_cap_mb_list"] == [2.25, 1.5]
    assert [int(cap * MIB) for cap in plan["bucket_cap_mb_list"]] == [9 * MIB // 4, 6 * MIB // 4]


def test_forms() -> None:
    made = pytorch_ddp(net(), COSTS, caps_mb=(1, 2))
    assert json.loads(text(made))["bucket_cap_mb_list"] == [2.25, 1.5]
    script = text(made, "py")
    compile(script, "plan", "exec")
    assert "bucket_cap_mb_list=[2.25, 1.5]" in script
    with pytest.raises(UsageError, match="no form 'toml'"):
        text(made, "toml")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"queue": Queue(keys={"l0": 1})}, "urgencies of x: DistributedDataParallel starts bucket i only after"),
        ({"queue": Queue(random=1)}, "urgencies"),
        ({"boundary": "layer"}, "boundary 'layer' of x: backward"),
        ({"rewrites": (Rewrite("partition", ("dp",), {"size_bytes": 10}),)}, "rewrite 'partition'"),
        ({"rewrites": (Rewrite("groups", ("dp",), {"names": [("l4", "l2")]}),)}, "l2 is sent where backward makes l3"),
    ],
)
def test_refusals(parts: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        ddp_plan(net().with_policy("x", **parts))
    assert words in str(caught.value)
    assert caught.value.remedy


def test_a_priority_scheduler_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="of p3: "):
        ddp_plan(p3(net(), COSTS))
    with pytest.raises(UsageError, match="sends no gradients of role tp"):
        ddp_plan(net(), roles=("tp",))


def test_each_stage_of_a_pipeline_has_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, form = tmp_path / "plan.json", ["--parallel", "pp2", "--policy", "pytorch-ddp"]
    assert main(["workload", "llama2-7b", "--gpus", "4", *form, "-o", str(file), "--to", "ddp-buckets"]) == 0
    plans = json.loads(file.read_text())
    assert len(plans) == 2
    for stage, plan in plans.items():
        assert plan["policy"] == "pytorch-ddp"
        assert all(name.startswith(f"{stage}.") for bucket in plan["buckets"] for name in bucket)
    sizes = [sum(plan["bucket_cap_mb_list"]) * MIB for plan in plans.values()]
    assert sum(sizes) == 4 * 6_738_415_616  # every parameter once, in float32
    capsys.readouterr()
    script = tmp_path / "plan.py"
    assert main(["workload", "vgg16", "--gpus", "4", "--policy", "pytorch-ddp", "-o", str(script)]) == 0
    compile(script.read_text(), "plan", "exec")
    assert main(["workload", "vgg16", "--gpus", "4", "--policy", "p3", "-o", str(tmp_path / "p3.py")]) == 2
    assert "urgencies of p3" in capsys.readouterr().err
    assert main(["workload", "vgg16", "--gpus", "4", "--parallel", "zero1", "-o", str(tmp_path / "z.py")]) == 2
    assert "is a reduce-scatter" in capsys.readouterr().err
    assert main(["workload", "mixtral-8x7b", "--gpus", "8", "--parallel", "ep4", "-o", str(tmp_path / "e.py")]) == 2
    assert "gradients of experts go to other ranks" in capsys.readouterr().err


def test_a_policy_without_a_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "vgg16", "--policy", "p3"]) == 2
    assert "--policy is for a file" in capsys.readouterr().err


def test_a_policy_goes_along_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, form = tmp_path / "w.json", ["vgg16", "--gpus", "4"]
    steps = []
    for policy in (["--policy", "p3"], []):
        assert main(["workload", *form, *policy, "-o", str(file), "--force"]) == 0
        capsys.readouterr()
        assert main(["simulate", str(file), "--policy", "none,p3", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        said = [each for each in found["assumptions"] if "own policy" in each]
        assert said == (["none is the file's own policy: p3"] if policy else [])
        steps.append([row["step_us"] for row in found["rows"]])
    assert steps[0][0] == steps[0][1] == steps[1][1] != steps[1][0]


def test_ranks_that_are_not_there_are_named() -> None:
    with pytest.raises(UsageError, match="no ranks 'stage9' have gradients") as caught:
        ddp_plan(pytorch_ddp(net(), COSTS), of="stage9")
    assert caught.value.remedy == "one of: all"
