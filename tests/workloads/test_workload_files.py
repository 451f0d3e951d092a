"""Workloads as files: what is written is read back as it was, and what is damaged ends in an error with its place."""

from __future__ import annotations

import json
import math
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ringwright.engines.job.run import simulate
from ringwright.formats.exports.workload_json import workload_json
from ringwright.formats.sources.programs.workload_json import read_workload, read_workload_json
from ringwright.ground.errors import InputError, RingwrightError, SchemaError, UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import RULES, check
from ringwright.model.values import Applied, Change, Placement, Value, Work
from ringwright.model.workload import (
    Edge,
    Gate,
    Mesh,
    Payload,
    Policy,
    Queue,
    RankClass,
    Resource,
    Rewrite,
    Task,
    Workload,
)
from ringwright.schedulers.order import by_layer
from ringwright.workloads.chain import ChainLayer, chain


def full() -> Workload:
    """Every field of every part at another value than its usual one."""
    send = Payload(
        "act", "s0", "send-recv", 8, ("pp",), "pp", ("F0",), (("F1", 0),), "micro-batch", 3, "bfloat16", 4, peer="s1"
    )
    sum_ = Payload(
        "grad",
        "s0",
        "all-reduce",
        16,
        ("dp",),
        "dp",
        ("F0",),
        (("U0", 0),),
        merges="g",
        joint=("s1",),
        factors=(2, 2),
        root=1,
    )
    queue = Queue(
        {"grad": 2},
        {"dp": (math.inf, "bytes"), "pp": (2, "operations")},
        {"dp": 1},
        (Gate(1, "attention"), Gate(1, 0, "running")),
        blocking=False,
        issue_s=1e-6,
        random=7,
    )
    policy = Policy(
        (Rewrite("fuse", ("dp",), {"caps_bytes": [1, 25]}), Rewrite("groups", settings={"names": [("grad",)]})),
        {"s0": (("F0", 1), ("F0", 0))},
        queue,
        "layer",
        "leader",
        {"queue": "p3"},
    )
    return Workload(
        'ein "Name"',
        Mesh((("pp", 2), ("dp", 2))),
        (RankClass("s0", {"pp": 0}), RankClass("s1", {"pp": 1})),
        (
            Task("F0", "s0", "F", 1e-3 / 3, 1, ("F", 1), tag="attention", demands=(("memory", 1.5),)),
            Task("F1", "s1", "F"),
            Task(
                "F2",
                "s1",
                "F",
                reads=(("x", 1),),
                writes=("y",),
                work=Work(1e9, 8, 4, "einsum", {"along": "b", "parts": [(1, 2), 3]}, {"b": 1e-6}),
            ),
            Task("U0", "s0", "U", per="step", stream="side"),
        ),
        (Edge("U0", "F0", 1),),
        (send, sum_),
        (Resource("memory", "tokens", math.inf), Resource("compute")),
        2,
        {"s1": (("F", 0, 0), ("F", 0, 1))},
        policy,
        ("measured once", "größer"),
        (
            Value("x", "s1", 8, (("b", 4), ("h", 2)), (Placement("dp", "sliced", "b"),), "parameter", "step"),
            Value("y", "s1", 4, (("b", 4),), (Placement("dp", "partial"),), dtype="bfloat16"),
        ),
        (Applied("split-collective", "grad", {"dim": "h"}, Change({"dp": 2.5}, 1, 3.0, -4)),),
    )


def test_everything_comes_back() -> None:
    made = full()
    assert read_workload_json(workload_json(made), "full") == made
    assert workload_json(read_workload_json(workload_json(made), "full")) == workload_json(made)


def test_a_chain_comes_back_and_takes_the_same_time(tmp_path: Path) -> None:
    made = chain(
        "toy", [ChainLayer(2, 2, 3, factors=(3, 1)), ChainLayer(2, 2, 6), ChainLayer(2, 2, 3)], micro_batches=2
    )
    made = made.with_policy(
        "p3",
        boundary="layer",
        queue=Queue(keys=by_layer(made)),
        rewrites=(Rewrite("partition", settings={"size_bytes": 1}),),
    )
    file = tmp_path / "toy.json"
    file.write_bytes(workload_json(made))
    again = read_workload(file)
    assert again == made
    assert check(again) == []
    assert simulate(again, LinkCosts(1.0)).step_s == simulate(made, LinkCosts(1.0)).step_s


SCHEDULERS = {
    "pytorch_ddp": "fifo",
    "gradientflow": "fifo",
    "poseidon": "fifo",
    "p3": "priority",
    "bytescheduler": "priority",
    "tictac": "priority",
    "pace": "priority",
}


@pytest.mark.parametrize("slug", SCHEDULERS)
def test_what_schedulers_decide_comes_back(slug: str) -> None:
    made = chain(
        "toy", [ChainLayer(2, 2, 3 << 20, factors=(3 << 9, 512)), ChainLayer(2, 2, 6 << 20), ChainLayer(2, 2, 3 << 20)]
    )
    schedule = getattr(import_module(f"ringwright.schedulers.{SCHEDULERS[slug]}.{slug}"), slug)
    decided = schedule(made, LinkCosts(1e7))
    assert decided.policy.by
    assert read_workload_json(workload_json(decided), slug) == decided
    assert check(decided, warnings=False) == []


def test_a_person_can_read_it() -> None:
    text = workload_json(full()).decode()
    assert '"time_s": 0.000333' in text
    assert "größer" in text
    small = workload_json(chain("toy", [ChainLayer(2, 2, 3)])).decode()
    assert '{"name": "F.layer0", "of": "all", "kind": "F", "time_s": 2}' in small  # usual values are left out


def test_the_page_shows_a_legal_workload_and_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "replay.md").read_text()
    shown = page.split("```json\n")[1].split("```")[0]
    made = read_workload_json(shown.encode(), "replay.md")
    assert check(made) == []
    assert simulate(made, LinkCosts(25e9)).step_s == pytest.approx(0.007)
    for rule, says in RULES.items():
        assert f"| {rule} | {says} |" in page


def test_what_no_file_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        workload_json(
            chain("toy", [ChainLayer(1, 1, 1)]).with_policy("x", rewrites=(Rewrite("fuse", settings={"x": object()}),))
        )


def _minimal(**changed: Any) -> bytes:
    document: dict[str, Any] = {
        "format": "ringwright.workload",
        "schema_version": 1,
        "name": "w",
        "mesh": {"axes": [["dp", 2]]},
        "classes": [{"name": "all"}],
        "tasks": [{"name": "a", "of": "all", "kind": "F", "time_s": 1}],
    }
    return json.dumps(document | changed).encode()


def test_a_few_lines_by_hand_are_a_workload() -> None:
    made = read_workload_json(_minimal(), "hand.json")
    assert made.mesh.size == 2
    assert check(made) == []


WRONG = {
    "unknown field": (_minimal(colour="red"), "no field is called 'colour'"),
    "unknown field of a task": (_minimal(tasks=[{"name": "a", "of": "all", "kind": "F", "seconds": 1}]), "'seconds'"),
    "missing": (_minimal(tasks=[{"name": "a", "of": "all"}]), "'kind' is missing"),
    "text for a number": (_minimal(micro_batches="two"), "'two' is no whole number"),
    "truth for a number": (_minimal(micro_batches=True), "no whole number"),
    "huge": (_minimal(micro_batches=1 << 70), "no whole number"),
    "no list": (_minimal(tasks={}), "is no list"),
    "wrong pair": (_minimal(mesh={"axes": [["dp"]]}), "no list of 2"),
    "deep": (_minimal(policy={"rewrites": [{"kind": "fuse", "settings": {"x": [[[[[[[[[[1]]]]]]]]]]}}]}), "too deeply"),
    "half a character": (_minimal(name="\ud800"), "half a character"),
    "nan": (_minimal().replace(b'"time_s": 1', b'"time_s": NaN'), "NaN is no number"),
    "twice": (_minimal().replace(b'"kind"', b'"name": "b", "kind"'), "'name' is there twice"),
    "not JSON": (b"{", "is not JSON"),
    "not UTF-8": (b"\xff\xfe{", "is not JSON"),
    "nested": (b"[" * 200_000, "is not JSON"),
    "long number": (_minimal().replace(b'"time_s": 1', b'"time_s": ' + b"9" * 5000), "is not JSON"),
    "other format": (b"{}", "is no workload"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_understood_is_refused_with_its_place(name: str) -> None:
    data, message = WRONG[name]
    with pytest.raises(InputError) as caught:
        read_workload_json(data, "bad.json")
    assert message in str(caught.value)
    assert "bad.json" in caught.value.where
    assert caught.value.remedy


def test_the_place_names_the_task() -> None:
    with pytest.raises(InputError) as caught:
        read_workload_json(_minimal(tasks=[{"name": "a", "of": "all", "kind": "F", "time_s": "long"}]), "bad.json")
    assert "tasks 0 'a' time_s" in caught.value.where


def test_a_file_of_tomorrow() -> None:
    with pytest.raises(SchemaError, match="schema 2"):
        read_workload_json(_minimal(schema_version=2), "new.json")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_workload(tmp_path / "none.json")


def _mutated(data: bytes, draw: random.Random) -> bytes:
    way = draw.randrange(4)
    if way == 0:
        return data[: draw.randrange(len(data))]
    at, much = draw.randrange(len(data)), draw.randrange(1, 20)
    if way == 1:
        return data[:at] + data[at + much :]
    if way == 2:
        return data[:at] + bytes(draw.choice(b'{}[]",:0123456789eE-.\\\x00\xff') for _ in range(much)) + data[at:]
    words = [b"null", b"-1", b"1e999", b'"inf"', b"{}", b"[]", b"true", b'"' + b"x" * 70 + b'"', b"9" * 30]
    colon = data.find(b": ", at)
    end = min((found for mark in (b",", b"}", b"]") if (found := data.find(mark, colon)) > 0), default=len(data))
    return data[: colon + 2] + draw.choice(words) + data[end:] if colon > 0 else data[:at]


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_end_in_an_error_of_the_tree_or_in_findings(seed: int) -> None:
    draw = random.Random(seed)
    data = workload_json(full())
    legal, refused = 0, []
    for _ in range(300):
        damaged = _mutated(data, draw)
        try:
            made = read_workload_json(damaged, "damaged.json")
        except RingwrightError as error:
            refused.append(str(error))
            continue
        found = check(made)
        legal += not found
        assert all(each.message for each in found)
    assert all(refused)
    assert legal + len(refused) < 300
    assert len(refused) > 100
