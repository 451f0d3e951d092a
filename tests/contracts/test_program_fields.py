"""Every field of a Collective, a Program, a Stream and a Capability changes an answer, or is listed as informative with its reason."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from ringwright.algorithms.blocks.linear import linear
from ringwright.algorithms.blocks.nvls import nvls
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines.choose import simulate
from ringwright.execute.job import AskedCollective
from ringwright.fabrics import fabric
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.formats.exports.threadblocks import scheduled
from ringwright.ground.errors import RingwrightError
from ringwright.model import interpreter, validity
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit
from ringwright.model.software import Software
from ringwright.model.streams import Stream
from ringwright.model.topology import Capability, Topology

pytestmark = pytest.mark.once
WANTED = Collective("all-reduce", range(4), 4000)
TOP = fabric("torus:2x2")
RING = ring(WANTED)


def asked(question: Any) -> str:
    try:
        return str(question())
    except RingwrightError as error:
        return f"refused: {error}"


def told(program: Program, topology: Topology = TOP) -> dict[str, str]:
    """Return what each reader of a program says of it: rules, interpreter, engines, closed form and a file."""
    given = interpreter.inputs(program.collective)
    return {
        "rules": asked(lambda: validity.check(program, warnings=True, topology=topology)),
        "result": asked(lambda: interpreter.run(validity.require(program), given)),
        "time": asked(lambda: (simulate(program, topology, "events"), simulate(program, topology, "events").time_ps)),
        "formula": asked(lambda: simulate(program, topology, "closed-form").time_ps),
        "file": asked(lambda: msccl_xml(program)),
    }


SHORT = [Step((explicit(Op.SEND, [0], [1], [0]),))]
PROGRAM: dict[str, Any] = {
    "name": "other",
    "collective": replace(WANTED, op="all-gather"),
    "layout": cut(WANTED, 2),
    "make_steps": lambda: iter(SHORT),
    "n_steps": RING.n_steps + 1,
    "cost": Cost((Term(1, 1.0),), 1.0),
    "aggregators": (4,),
    "streams": (Stream(4),),
    "protocol": "LL",
    "software": Software(base_s=1e-3),
}
INFORMATIVE: dict[str, Any] = {
    "channels": 7,  # how many there are is told in tables; which one a move takes stands in its block
}


@pytest.mark.parametrize("name", sorted({each.name for each in fields(Program)} - {"knobs", "schedule"}))
def test_a_field_of_a_program_is_noticed(name: str) -> None:
    if name in INFORMATIVE:
        assert told(replace(RING, **{name: INFORMATIVE[name]})) == told(RING)
    else:
        assert told(replace(RING, **{name: PROGRAM[name]})) != told(RING)


def test_a_declared_order_is_noticed() -> None:
    ordered = scheduled(RING)
    assert told(replace(ordered, schedule=None)) != told(ordered)


def test_the_factors_of_a_program_say_what_a_level_is() -> None:
    cost = Cost((Term(1, 1000.0, "level1"),), 1.0)
    one, other = (replace(RING, cost=cost, knobs={"factors": factors}) for factors in ((2, 2), (1, 4)))
    far = fabric("ring:4,rate=1GB/s,latency_s=1e-6")
    assert told(one, far)["formula"] != told(other, far)["formula"]


COLLECTIVE: dict[str, Any] = {
    "op": "reduce-scatter",
    "group": (0, 1, 3, 2),
    "size_bytes": 8000,
    "dtype": "float64",
    "reduce_op": "max",
    "root": 1,
    "in_place": True,
    "counts": (4, 8, 12, 16),
    "commutative": False,
}


BEFORE = {"counts": Collective("all-gather", range(4), 40)}


@pytest.mark.parametrize("name", [each.name for each in fields(Collective)])
def test_a_field_of_a_collective_is_noticed(name: str) -> None:
    """By the readers of a program made for it; what a ring cannot do it refuses, which is noticing too."""
    before = BEFORE.get(name, WANTED)
    other = replace(before, **{name: COLLECTIVE[name]})
    if name == "root":
        before = Collective("broadcast", range(4), 4000)
        assert told(linear(replace(before, root=1))) != told(linear(before))
        return
    if name == "in_place":
        assert AskedCollective.of(other) != AskedCollective.of(before)  # real ranks: where their input lies
        return
    assert asked(lambda: told(ring(other))) != asked(lambda: told(ring(before)))


NVLS_TOP = fabric("dgx-h100:1")
NVLS = nvls(Collective("all-reduce", range(8), 1 << 20), NVLS_TOP)
PACKETS = replace(NVLS, streams=(replace(NVLS.streams[0], slots=4096, payload_bytes=256),))
ORDERED = replace(NVLS, collective=replace(NVLS.collective, commutative=False))
# The program that notices a figure of its switch, and another value of it.
CAPABILITY: dict[str, tuple[Program, Any]] = {
    "ops": (NVLS, ("max",)),
    "dtypes": (NVLS, ("int8",)),
    "fanin_max": (NVLS, 2),
    "memory_bytes": (NVLS, 1),
    "payload_bytes": (PACKETS, 128),
    "reduce_rate": (NVLS, 1e9),
    "multicast": (NVLS, False),
    "latency_s": (NVLS, 1e-3),
    "concurrency": (NVLS, 0),
    "passes": (NVLS, 4),
    "codecs": (NVLS, ("block-exponent",)),
    "order": (ORDERED, "fixed"),
    "provenance": (ORDERED, "elsewhere"),  # in every refusal
}


def with_switch(**changed: Any) -> Topology:
    """Return the machine with other figures of its switch."""
    return replace(
        NVLS_TOP, aggregators={node: replace(able, **changed) for node, able in NVLS_TOP.aggregators.items()}
    )


@pytest.mark.parametrize("name", [each.name for each in fields(Capability)])
def test_a_field_of_a_capability_is_noticed(name: str) -> None:
    program, changed = CAPABILITY[name]
    assert told(program, with_switch(**{name: changed})) != told(program, NVLS_TOP)


# As above, of the stream of a program: what goes before, and what is changed.
STREAM: dict[str, tuple[dict[str, Any], Any]] = {
    "node": ({}, 9),
    "slots": ({}, 16),
    "versions": ({"slots": 16384}, 2),
    "window": ({}, 1),
    "payload_bytes": ({"slots": 64}, 16),
    "codec": ({}, "split-float"),
    "loss": ({"versions": 2}, "host-timer"),
    "timeout_s": ({}, 1e-3),
    "fallback": ({}, 0),
    "jobs": ({"slots": 64, "loss": "resend-to-server", "timeout_s": 1e-3, "fallback": 0}, 8),
    "channels": ({}, (7,)),
}


@pytest.mark.parametrize("name", [each.name for each in fields(Stream)])
def test_a_field_of_a_stream_is_noticed(name: str) -> None:
    given, changed = STREAM[name]
    before = replace(NVLS, streams=(replace(NVLS.streams[0], **given),))
    after = replace(NVLS, streams=(replace(before.streams[0], **{name: changed}),))
    assert told(after, NVLS_TOP) != told(before, NVLS_TOP)
