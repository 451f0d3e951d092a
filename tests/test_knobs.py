"""Knobs: what a spelling may say, what each system declares, and that nothing typed ends as a bug of ours."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import pytest

from ringwright.cli import main
from ringwright.costs.nccl import constants, releases
from ringwright.fabrics import fabric, families
from ringwright.fabrics import knobs as knobs_of_fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import DeclinedError, RingwrightError, UsageError
from ringwright.ground.knobs import Choices, Pattern, Range, knobs_of
from ringwright.ground.spellings import parse
from ringwright.ground.units import parse_rate, parse_size, parse_time
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright_lab.contracts.knob_values import factors, spellings

pytestmark = pytest.mark.once
SYSTEMS = (*registry.systems(), *registry.schedulers())
KNOBS = [(system.slug, knob) for system in SYSTEMS for knob in system.knobs().values()] + [
    (name, knob) for name in families() for knob in knobs_of_fabric(name).values()
]


def ours(
    *,
    count: Annotated[int, Range(1, 64)] = 1,
    size: Annotated[int, Range(0, 1 << 30, "B")] = 0,
    wait: Annotated[float, Range(0, 1, "s")] = 0.0,
    speed: Annotated[float, Range(1e3, 1e12, "B/s")] | None = None,
    kind: Literal["plain", "two-way"] = "plain",
    seat: Annotated[str, Choices(("rank",)), Pattern("random-[0-9]+", "random-SEED", ("random-1",))] = "rank",
    parts: Sequence[Annotated[int, Range(1, 8)]] | None = None,
    number: Annotated[int, Range(0, 9)] | Annotated[str, Choices(("first",))] | None = None,
    on: bool = False,
    table: dict[str, int] | None = None,
) -> None:
    """Nothing."""


def value(name: str, text: str) -> Any:
    return parse("ours", knobs_of(ours)[name], text)


@pytest.mark.parametrize(
    ("name", "text", "means"),
    [
        ("count", "64", 64),
        ("count", "5e1", 50),
        ("size", "64K", 65536),
        ("wait", "0.5us", 5e-7),
        ("wait", "1e-3", 1e-3),
        ("speed", "400Gb/s", 5e10),
        ("speed", "none", None),
        ("kind", "two_way", "two-way"),
        ("kind", "PLAIN", "plain"),
        ("seat", "random-7", "random-7"),
        ("parts", "2x4", (2, 4)),
        ("parts", "8", (8,)),
        ("number", "first", "first"),
        ("number", "3", 3),
        ("on", "yes", True),
        ("on", "false", False),
    ],
)
def test_what_is_declared_is_taken(name: str, text: str, means: object) -> None:
    assert value(name, text) == means
    assert type(value(name, text)) is type(means)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("count", "0"),
        ("count", "65"),
        ("count", "1.5"),
        ("count", ""),
        ("count", "none"),
        ("count", "2x2"),
        ("count", "٣"),
        ("size", "-1"),
        ("size", "2G"),
        ("wait", "nan"),
        ("wait", "inf"),
        ("wait", "-1us"),
        ("speed", "1b/s"),
        ("kind", "x"),
        ("seat", "random-"),
        ("parts", "2x9"),
        ("parts", "2x"),
        ("parts", ""),
        ("number", "10"),
        ("on", "maybe"),
        ("table", "1"),
    ],
)
def test_what_is_not_declared_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        value(name, text)
    assert f"ours cannot have {name}={text}: {name} is " in str(caught.value)
    assert caught.value.remedy == "ringwright systems ours"


@pytest.mark.parametrize(("slug", "knob"), KNOBS, ids=[f"{slug}-{knob.name}" for slug, knob in KNOBS])
def test_every_knob_says_its_range_and_what_it_means(slug: str, knob: Any) -> None:
    assert knob.meaning, f"the Knobs section of {slug} does not name {knob.name}"
    for form in knob.forms:
        assert form.limits or form.kind not in ("int", "float"), f"{slug}:{knob.name} has no Range"
        assert form.choices or form.pattern or form.kind != "text", f"{slug}:{knob.name} has no Choices"
    if knob.can_be_typed and knob.default is not None and not callable(knob.default):
        typed = knob.document()["default"]
        assert parse(slug, knob, str(typed)) == knob.default, "the default is a value of its own knob"


def test_systems_lists_the_knobs_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["systems", "nccl-2-4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "protocol=none ll, ll128, simple or none" in said
    assert "a whole number from 1 to 64" in said
    assert main(["systems", "dgx-h100", "--json"]) == 0
    listed = {knob["name"]: knob for knob in json.loads(capsys.readouterr().out)["knobs"]}
    assert listed["routing"]["choices"] == ["d-mod-k", "ecmp"]
    assert (listed["oversubscription"]["low"], listed["oversubscription"]["high"]) == (0.01, 1000)
    assert main(["systems", "gradientfow"]) == 2
    assert "gradientflow" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spelling", "says"),
    [
        ("accl:nonsense=1", "accl has no knob 'nonsense': it has pieces"),
        ("nccl-2-4:protocol=abc", "protocol is ll, ll128, simple or none"),
        ("ring:channels=-1", "channels is a whole number from 1 to 64"),
        ("ring:channels=2:channels=3", "channels is given twice"),
        ("blueconnect:inner=foo", "no system is called 'foo'"),
        ("blueconnect:inner=p3", "orders communication"),
        ("p2@2x2", "'@' names a release of a library; p2 has none"),
        ("mpich2:rules=1", "mpich2 has no knob 'rules'"),
        ("allgather-reduce:channels=2", "it has none"),
        ("ring:channels", "no knob=value"),
    ],
)
def test_a_wrong_spelling_names_the_knob_and_the_command(
    spelling: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["simulate", "all-reduce", "--fabric", "switch:16", "--algorithm", spelling, "-b", "1M", "-e", "1M"]) == 2
    )
    said = capsys.readouterr().err
    assert says in said
    command = said.rpartition("try: ")[2].split()
    assert main(command[1:]) == 0, "the remedy runs"


def test_a_number_may_have_an_exponent_with_a_sign_beside_the_one_that_joins_schedulers() -> None:
    label, _ = registry.scheduler("lina:memory_gb=1e+06+p3:slice_elements=40000")
    assert label == "lina:memory_gb=1e+06+p3:slice_elements=40000"


def test_what_ended_as_a_bug_of_ours_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    end = ["-b", "1M", "-e", "1M", "--json"]
    assert main(["simulate", "all-reduce", "--fabric", "switch:16", "--algorithm", "blueconnect:factors=16", *end]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["time_us"] > 0
    job = ["simulate", "--model", "resnet50", "--fabric", "dgx-h100:1", "--gpus", "8", "--parallel", "dp8"]
    assert main([*job, "--policy", "gradientflow:element_bytes=-1"]) == 2
    assert "element_bytes is a whole number from 1 to 8" in capsys.readouterr().err


@pytest.mark.parametrize("spelling", ["accl:inner=pairwise", "blueconnect:factors=8x2:inner=torus-2d-allreduce"])
def test_an_algorithm_with_places_of_its_own_serves_no_level(spelling: str) -> None:
    with pytest.raises(UsageError, match="needs slots of its own beside the data"):
        made(spelling, "all-reduce", "dgx-h100:2")


def test_pieces_without_number_are_declined_before_they_are_made() -> None:
    _, make, knobs = registry.algorithm("binary-tree:segment_bytes=4")
    with pytest.raises(DeclinedError, match="4,194,304 segments on 16 ranks"):
        make(Collective("broadcast", range(16), 16 << 20), fabric("switch:16"), **knobs)


# ----------------------------------------------------------------------------------------------------------- the matrix
def made(spelling: str, op: str, machine: str) -> Program:
    _, make, knobs = registry.algorithm(spelling)
    top = fabric(machine)
    return make(Collective(op, range(top.n_ranks), 1 << 16), top, **knobs)


@pytest.mark.parametrize("system", registry.systems(), ids=lambda system: system.slug)
def test_a_system_takes_or_declines_what_its_knobs_declare(system: registry.System) -> None:
    """Some spellings a knob: what is declared is taken by the knob; a program or our own error comes of it, no other."""
    draw = random.Random(system.slug)
    names = [each.slug for each in registry.systems()]
    machines = (
        ("switch:4", "leaf-spine:4,per_leaf=2")
        if ".synthesis." in system.module
        else ("dgx-h100:2,sharp=true", "switch:16")
    )
    several = 2 if system.kind == "synthesis" else 4  # there each is a search
    for knob in system.knobs().values():
        for each in spellings(knob, draw, several, algorithms=names):
            spelling = f"{system.slug}:{knob.name}={each.text}"
            if each.is_declared:
                registry.algorithm(spelling)
            with contextlib.suppress(RingwrightError):
                program = made(spelling, draw.choice(system.ops), draw.choice(machines))
                assert program.n_steps >= 0
                assert program.cost.sent_bytes >= 0


@pytest.mark.parametrize("name", families())
def test_a_fabric_takes_or_declines_what_its_knobs_declare(name: str) -> None:
    draw = random.Random(name)
    size = {"dragonfly": "3x2x2", "dragonfly-plus": "3x2x2", "tpu": "4x4x4"}.get(name, "2")
    for knob in knobs_of_fabric(name).values():
        for each in spellings(knob, draw, 2):
            if each.is_declared:
                parse(name, knob, each.text)
            with contextlib.suppress(UsageError):
                top = fabric(f"{name}:{size},{knob.name}={each.text}")
                assert (top.rate > 0).all()
                assert (top.latency_s >= 0).all()


def test_factors_make_the_ranks() -> None:
    draw = random.Random(0)
    for ranks in (1, 2, 12, 16):
        product = 1
        for factor in factors(ranks, draw):
            product *= factor
        assert product == ranks


# ---------------------------------------------------------------------------------------------------------- NCCL forced
def nccl(spelling: str, op: str = "all-reduce", machine: str = "dgx-h100:2") -> Program:
    return made(f"nccl-2-4{spelling}", op, machine)


@pytest.mark.parametrize("release", ["2.4", *releases()])
def test_every_release_can_be_forced_to_a_ring(release: str) -> None:
    program = nccl(f"@{release}:algorithm=ring:protocol=ll:channels=2")
    assert (program.knobs["algorithm"], program.protocol, program.knobs["channels"]) == ("ring", "ll", 2)
    assert nccl(f"@{release}:algorithm=tree").knobs["algorithm"] == "tree"


@pytest.mark.parametrize(
    ("spelling", "op", "machine", "algorithm"),
    [
        ("@2.23:algorithm=pat", "all-gather", "fat-tree:16", "pat"),
        (":algorithm=pat", "reduce-scatter", "leaf-spine:16", "pat"),
        ("@2.18:algorithm=nvls", "all-reduce", "dgx-h100:1", "nvls"),
        (":algorithm=nvls-tree", "all-reduce", "dgx-h100:2", "nvls_tree"),
        (":algorithm=nvls", "all-reduce", "dgx-h100:2,sharp=true", "nvls"),
        ("@2.21:algorithm=collnet-chain", "all-reduce", "dgx-h100:2,sharp=true", "collnet_chain"),
        (":protocol=ll128", "all-reduce", "dgx-h100:2", None),
    ],
)
def test_what_the_release_and_the_machine_can_do_is_forced(
    spelling: str, op: str, machine: str, algorithm: str | None
) -> None:
    program = nccl(spelling, op, machine)
    assert algorithm in (None, program.knobs["algorithm"])
    assert "protocol" not in spelling or program.protocol == "ll128"


@pytest.mark.parametrize(
    ("spelling", "op", "machine", "why"),
    [
        ("@2.22:algorithm=pat", "all-gather", "fat-tree:16", "NCCL 2.22.3 has no pat"),
        (":algorithm=pat", "all-reduce", "fat-tree:16", "pat does not do all-reduce"),
        (":algorithm=pat", "all-gather", "dgx-h100:2", "PAT is for one GPU per node"),
        ("@2.16:algorithm=nvls", "all-reduce", "dgx-h100:1", "NCCL 2.16.5 has no nvls"),
        (":algorithm=nvls", "all-reduce", "switch:8", "NV"),
        (":algorithm=nvls", "all-reduce", "dgx-h100:2", "NVLS between nodes needs a network that reduces"),
        (":algorithm=nvls:protocol=ll", "all-reduce", "dgx-h100:1", "nvls runs on Simple only"),
        (":algorithm=collnet-direct", "all-reduce", "dgx-h100:2", "the network does not reduce"),
        ("@2.4:protocol=ll128", "all-reduce", "dgx-h100:2", "NCCL 2.4 has no"),
        (":algorithm=tree", "all-gather", "dgx-h100:2", "tree does not do all-gather"),
        ("@2.5:channels=64", "all-reduce", "dgx-h100:2", "NCCL 2.5 has 1 to 32 channels, not 64"),
    ],
)
def test_what_it_cannot_do_is_refused_with_its_reason_and_a_way_that_runs(
    spelling: str, op: str, machine: str, why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        nccl(spelling, op, machine)
    assert why in caught.value.what
    remedy = caught.value.remedy.split()
    if remedy[0] == "--algorithm":
        assert made(remedy[1], op, machine).knobs["algorithm"] in remedy[1]


def test_a_forced_tree_is_not_a_ring() -> None:
    ring, tree = (nccl(f":algorithm={name}:protocol=simple") for name in ("ring", "tree"))
    assert ring.n_steps != tree.n_steps
    assert constants("2.30").rules.max_channels == 64


# --------------------------------------------------------------------------------------------------- faults and figures
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("link * latency 1e30h", "at most 1000 s"),
        ("link * rate 1e300%", "at most 10000%"),
        ("rank 0 slow 1e300x", "not 1e+300"),
        ("rank 0 slow 1e-300x", "not 1e-300"),
        ("link 0 flap 1ms every 1e309ms", "not a time"),
        ("link * latency -5us", "not a time"),
        ("rank 0 slow nanx", "no number"),
    ],
)
def test_a_fault_beyond_what_a_machine_can_have_is_refused(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        apply(fabric("dgx-h100:2"), [line])


@pytest.mark.parametrize(
    ("parse_it", "text"),
    [(parse_size, "9" * 400), (parse_size, "999999999T"), (parse_rate, "1e400GB/s"), (parse_time, "1e309")],
)
def test_a_figure_that_nothing_holds_is_no_figure(parse_it: Callable[[str], float], text: str) -> None:
    with pytest.raises(UsageError):
        parse_it(text)
