"""Gathers ahead as FSDP2's lists: from a Workload, read back, and applied to a tree of modules by name."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ringwright
from patience import HANG_S
from ringwright.cli import main
from ringwright.formats.settings.fsdp2_prefetch import (
    as_json,
    as_python,
    parse_fsdp2_prefetch,
    prefetch_plans,
    read_fsdp2_prefetch,
)
from ringwright.graph.algebra import rewritten
from ringwright.graph.frameworks.prefetch import PrefetchPlan
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright.schedulers.decompose.centauri._tiers import fetched

pytestmark = pytest.mark.once
LAYERS = 12


@pytest.fixture(scope="module")
def sharded() -> Workload:
    return ringwright.job("gpt2", gpus=4, parallel="fsdp", micro_batches=2)


def test_one_layer_ahead_is_one_module_in_every_list(sharded: Workload) -> None:
    """The Workload's own order: each layer gathers the next one, the root the first one of each pass."""
    (plan,) = prefetch_plans(sharded).values()
    names = ["root", *(f"layer{at}" for at in range(LAYERS))]
    back = ["root", *reversed(names[1:])]
    assert plan.forward == {unit: (ahead,) for unit, ahead in pairwise(names)}
    assert plan.backward == {unit: (ahead,) for unit, ahead in pairwise(back)}
    assert (plan.depth, set(plan.units)) == (1, set(names))


def test_a_policy_that_gathers_further_ahead_has_longer_lists(sharded: Workload) -> None:
    deeper = rewritten(sharded, fetched(sharded, 3)).with_policy("centauri", agreement="static")
    (plan,) = prefetch_plans(deeper).values()
    assert plan.policy == "centauri"
    assert plan.forward["layer1"] == ("layer2", "layer3", "layer4")
    assert plan.forward["layer2"] == ("layer5",)
    assert plan.backward["layer8"] == ("layer5",)
    assert plan.depth == 3
    for write in (as_json, as_python):
        assert [*parse_fsdp2_prefetch(write(deeper).decode()).values()] == [plan]


def test_experts_are_gathered_with_their_layer() -> None:
    plans = prefetch_plans(ringwright.job("mixtral-8x7b", gpus=16, parallel="ep4,tp2,fsdp"))
    assert plans["all"].forward["layer0"] == ("layer1", "layer1.experts")


def test_each_stage_of_a_pipeline_has_its_own_lists() -> None:
    workload = ringwright.job("gpt2", gpus=4, parallel="fsdp,pp2", micro_batches=2)
    plans = prefetch_plans(workload)
    assert set(plans) == {"stage0", "stage1"}
    assert plans["stage1"].forward["layer6"] == ("layer7",)
    assert parse_fsdp2_prefetch(as_json(workload).decode()) == plans
    with pytest.raises(UsageError, match="2 kinds of ranks"):
        as_python(workload)


def test_a_gather_that_may_begin_before_its_direction_begins_with_it(sharded: Workload) -> None:
    (plan,) = prefetch_plans(beginning(sharded, "all.F.layer3.dense.0", "all.regather.layer9.dp")).values()
    assert plan.backward["root"] == ("layer11", "layer9")
    assert "layer10" not in plan.backward


def test_what_fsdp2_cannot_do_is_refused(sharded: Workload) -> None:
    with pytest.raises(UsageError, match="gathers no parameters"):
        as_json(ringwright.job("gpt2", gpus=2, parallel="dp2"))
    for parts in ({"queue": Queue(keys={"a": 1})}, {"queue": Queue(random=1)}, {"rewrites": (Rewrite("fuse"),)}):
        with pytest.raises(UsageError, match="first come first served: p cuts"):
            as_json(sharded.with_policy("p", **parts))
    with pytest.raises(UsageError, match="several stages"):
        as_json(ringwright.job("gpt2", gpus=4, parallel="fsdp,pp2,vp2", micro_batches=2))
    with pytest.raises(UsageError, match="other direction"):
        as_json(beginning(sharded, "all.dW.layer3.dense.0"))
    with pytest.raises(UsageError, match="in the midst"):
        as_json(beginning(ringwright.job("gpt2", gpus=4, parallel="fsdp,tp2"), "all.F.layer1.dense.0"))


def beginning(workload: Workload, behind: str, name: str = "all.gather.layer3.dp") -> Workload:
    """Return the workload with a gather behind another task."""
    gather = workload.payload[name]
    moved = dataclasses.replace(gather, producers=(behind,))
    return dataclasses.replace(
        workload, payloads=tuple(moved if each is gather else each for each in workload.payloads)
    )


# ------------------------------------------------------------------------------------------------------- the hook itself
class FakeModule:
    """A module as FSDP2 leaves it: named parts, and the two functions, which keep what they are given."""

    def __init__(self, *names: str) -> None:
        self.parts = {name: FakeModule() for name in names}
        self.ahead: dict[str, list[FakeModule]] = {}

    def named_modules(self) -> Iterator[tuple[str, FakeModule]]:
        yield "", self
        yield from self.parts.items()

    def set_modules_to_forward_prefetch(self, modules: list[FakeModule]) -> None:
        self.ahead["forward"] = modules

    def set_modules_to_backward_prefetch(self, modules: list[FakeModule]) -> None:
        self.ahead["backward"] = modules


def prefetch(text: bytes, model: FakeModule, **names: Any) -> None:
    scope: dict[str, Any] = {}
    exec(compile(text, "hook", "exec"), scope)
    scope["prefetch"](model, **names)


def test_the_hook_finds_modules_by_name_and_gives_them_their_lists(sharded: Workload) -> None:
    text = as_python(sharded)
    model = FakeModule(*(f"transformer.h.{at}" for at in range(LAYERS)))
    prefetch(text, model)
    blocks = [*model.parts.values()]
    assert model.ahead == {"forward": [blocks[0]], "backward": [blocks[-1]]}
    assert blocks[4].ahead == {"forward": [blocks[5]], "backward": [blocks[3]]}
    assert blocks[0].ahead == {"forward": [blocks[1]]}
    assert blocks[-1].ahead == {"backward": [blocks[-2]]}


def test_the_hook_asks_for_names_that_it_cannot_find(sharded: Workload) -> None:
    text = as_python(sharded)
    strange = FakeModule(*(f"block_{at}" for at in range(LAYERS)))
    with pytest.raises(KeyError, match=r"no sharded module is layer0: prefetch\(model, names="):
        prefetch(text, strange)
    prefetch(text, strange, names={f"layer{at}": f"block_{at}" for at in range(LAYERS)})
    assert strange.parts["block_2"].ahead["forward"] == [strange.parts["block_3"]]
    twice = FakeModule(*(f"{side}.{at}" for side in ("encoder", "decoder") for at in range(LAYERS)))
    with pytest.raises(KeyError, match="several sharded modules are layer0"):
        prefetch(text, twice)


@pytest.mark.torch
def test_a_model_that_fsdp2_shards_takes_the_lists_and_a_step(tmp_path: Path) -> None:
    """Four layers, two ahead, on one real rank: 0 is the root, 1 to 4 the layers."""
    pytest.importorskip("torch")
    small = ringwright.job("gpt2", gpus=4, parallel="fsdp", micro_batches=2)
    (plan,) = prefetch_plans(rewritten(small, fetched(small, 2))).values()
    kept = {"root", *(f"layer{at}" for at in range(4))}
    ahead = {
        name: {unit: [each for each in others if each in kept] for unit, others in lists.items() if unit in kept}
        for name, lists in (("FORWARD", plan.forward), ("BACKWARD", plan.backward))
    }
    text = as_python(small).decode()
    (tmp_path / "hook.py").write_text(
        "".join(f"{name} = {lists}\n" for name, lists in ahead.items()) + text[text.index("def prefetch") :]
    )
    command = [
        sys.executable,
        str(Path(__file__).parents[1] / "fsdp2_hook.py"),
        str(tmp_path / "hook.py"),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    names = ["root", *(f"layer{at}" for at in range(4))]
    want = {
        name.lower(): [[names.index(each) for each in lists.get(unit, [])] for unit in names]
        for name, lists in ahead.items()
    }
    assert json.loads(done.stdout) == {**want, "gradients": True}
    assert any(len(each) > 1 for each in want["forward"])


def test_names_in_a_workload_of_elsewhere_do_not_become_code(sharded: Workload) -> None:
    strange = sharded.with_policy('x"""\nimport nothing_of_the_kind\n"""', agreement="static")
    text = as_python(strange)
    prefetch(text, FakeModule(*(f"h.{at}" for at in range(LAYERS))))
    assert parse_fsdp2_prefetch(text.decode())[""].policy == strange.policy.label


def test_experts_are_found_inside_their_layer() -> None:
    text = as_python(ringwright.job("mixtral-8x7b", gpus=16, parallel="ep4,tp2,fsdp"))
    names = [name for at in range(32) for name in (f"layers.{at}", f"layers.{at}.moe.experts")]
    model = FakeModule(*names)
    prefetch(text, model)
    assert model.parts["layers.0"].ahead["forward"] == [
        model.parts["layers.1"],
        model.parts["layers.1.moe.experts"],
    ]


def test_the_verb_writes_both(tmp_path: Path) -> None:
    asked = ["workload", "gpt2", "--gpus", "4", "--parallel", "fsdp"]
    for kind in ("fsdp2-prefetch", "fsdp2-prefetch-py"):
        assert main([*asked, "--to", kind, "-o", str(tmp_path / kind)]) == 0
    (one,) = read_fsdp2_prefetch(tmp_path / "fsdp2-prefetch").values()
    (other,) = read_fsdp2_prefetch(tmp_path / "fsdp2-prefetch-py").values()
    assert one == other


# ------------------------------------------------------------------------------------------------------------- broken files
def test_a_plan_gathers_no_unit_by_itself_or_twice() -> None:
    for ahead in (("a",), ("b", "b")):
        with pytest.raises(UsageError, match="gathers itself, or one twice"):
            PrefetchPlan({"a": ahead})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("{}", "should stand here"),
        ('{"fsdp2_prefetch": {"all": 3}}', "is an object"),
        ('{"fsdp2_prefetch": {"all": {"forward": []}}}', "are an object"),
        ('{"fsdp2_prefetch": {"all": {"forward": {"a": "b"}}}}', "names of units"),
        ('{"fsdp2_prefetch": {"all": {"forward": {"a": ["a"]}}}}', "gathers itself"),
        ('{"fsdp2_prefetch": {"all": {"policy": 3}}}', "is a text"),
        ("import os\nFORWARD = os.environ\nBACKWARD = {}\n", "neither JSON nor Python"),
        ("FORWARD = {}\n", "should stand here"),
        ("FORWARD = {1: []}\nBACKWARD = {}\n", "names of units"),
        ("(" * 400, "neither JSON nor Python"),
    ],
)
def test_a_broken_file_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_fsdp2_prefetch(text)
    assert parse_fsdp2_prefetch(json.dumps({"fsdp2_prefetch": {"all": {}}}))["all"] == PrefetchPlan()
