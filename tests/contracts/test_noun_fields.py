"""Every field of a Topology, a Workload and its Policy changes what is exported, or is told to be informative with its reason."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from ringwright.costs.calibration import load
from ringwright.fabrics import fabric
from ringwright.formats.exports.topology_json import topology_json
from ringwright.formats.exports.workload_json import workload_json
from ringwright.model.topology import Capability, Fault, SharedCapacity, Topology
from ringwright.model.values import Applied, Value
from ringwright.model.workload import Mesh, Policy, Queue, RankClass, Rewrite, Workload
from ringwright_lab.contracts.small_jobs import layers

pytestmark = pytest.mark.once
TOP = fabric("switch:4")
JOB = layers(random.Random(1)).job(4)
TOPOLOGY: dict[str, Any] = {
    "name": "other",
    "kinds": np.where(TOP.kinds == 2, 1, TOP.kinds).astype(np.uint8),
    "src": TOP.src[::-1].copy(),
    "dst": TOP.dst[::-1].copy(),
    "rate": TOP.rate * 2,
    "latency_s": TOP.latency_s + 1e-6,
    "groups": (SharedCapacity("plane", 1e9, np.array([0, 1])),),
    "classes": tuple(f"other-{name}" for name in TOP.classes),
    "hosts": np.array([0, 0, 1, 1]),
    "message_s": {TOP.classes[0]: 3e-6},
    "occupying": (TOP.classes[0],),
    "reduce_rate": 5e9,
    "aggregators": {4: Capability(latency_s=1e-6)},
    "loss": np.full(TOP.n_links, 0.01),
    "faults": (Fault(0.0, "link", 0, "rate_factor", 0.5),),
    "transport": "roce",
    "protocol": "tcp-bbr",
    "packet_bytes": 1024,
    "header_bytes": 82,
    "provenance": "elsewhere",
    "fault_lines": ("link * rate 50%",),
    "fault_seed": 7,
    "calibration": load("a100-nvswitch"),
}
WORKLOAD: dict[str, Any] = {
    "name": "other",
    "mesh": Mesh((("dp", 2),)),
    "classes": (RankClass("all", {"dp": 0}),),
    "tasks": JOB.tasks[1:],
    "edges": JOB.edges[1:],
    "payloads": JOB.payloads[1:],
    "resources": (),
    "micro_batches": 3,
    "order": {"all": (("F", 0, 0),)},
    "policy": Policy(boundary="layer", by={"boundary": "x"}),
    "assumptions": ("said",),
    "values": (Value("x", "all", 8),),
    "applied": (Applied("split-collective", "x"),),
}
POLICY: dict[str, Any] = {
    "rewrites": (Rewrite("partition", settings={"size_bytes": 3}),),
    "order": {"all": (("F.l0", 0),)},
    "queue": Queue(random=3),
    "boundary": "layer",
    "agreement": "static",
    "by": {"queue": "me"},
}


@pytest.mark.parametrize("name", [each.name for each in fields(Workload)])
def test_a_field_of_a_workload_is_noticed(name: str) -> None:
    assert workload_json(replace(JOB, **{name: WORKLOAD[name]})) != workload_json(JOB)


@pytest.mark.parametrize("name", [each.name for each in fields(Policy)])
def test_a_field_of_a_policy_is_noticed(name: str) -> None:
    changed = replace(JOB, policy=replace(JOB.policy, **{name: POLICY[name]}))
    assert workload_json(changed) != workload_json(JOB)


@pytest.mark.parametrize("name", sorted(TOPOLOGY))
def test_a_field_of_a_topology_is_noticed(name: str) -> None:
    assert topology_json(replace(TOP, **{name: TOPOLOGY[name]})) != topology_json(TOP)


def test_fields_of_a_topology_that_no_file_holds_are_few() -> None:
    left_out = {
        "n_ranks",
        "link_class",
        "axes",
        "names",
        "paths",
        "is_symmetric",  # follow from nodes and links, or speed up routes
    }
    assert {each.name for each in fields(Topology)} - set(TOPOLOGY) == left_out
