"""What a system may need of a job, a machine, its transport and its memory: each need by the field that it stands for.

A system declares its needs as ``NEEDS``, names of this table, beside its ``OPS``. A need whose field is one of a Workload or a
Topology is looked up there; transport and memory are not part of a simulated machine, so theirs are told, never unmet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.switch_trees import network_switches

if TYPE_CHECKING:
    from ringwright.model.topology import Topology
    from ringwright.model.workload import Workload

OPS = "collective.op"
MADE_OF = {  # what is no collective by itself
    "push-pull": ("reduce-scatter", "all-gather"),
    "factors": ("all-gather",),
    "send-recv": (),
    "shift": (),
    "copy": (),
}
ROOMS = ("collective", "workload", "topology", "transport", "memory", "trace")


@dataclass(frozen=True)
class Scene:
    """A job on a machine; ``recorded``: it was recorded, not made from a model; ``measured``: with the times of its steps."""

    workload: Workload
    topology: Topology | None = None
    recorded: bool = False
    measured: bool = False


@dataclass(frozen=True)
class Need:
    """``meaning`` in words; ``lacking`` says what is there instead, "" where the need is met. None: no field to look at."""

    meaning: str
    lacking: Callable[[Scene], str] | None = None


def _travels(workload: Workload, role: str = "", op: str = "") -> bool:
    """Say whether anything of a role, or an operation, is exchanged between two ranks or more."""
    wanted = (each for each in workload.payloads if role in ("", each.role) and op in ("", each.op))
    return any(each.op == "send-recv" or workload.mesh.extent(each.axes) > 1 for each in wanted)


def collectives(workload: Workload) -> set[str]:
    """Return the collectives that a job's ranks do; what goes from one rank to another is none."""
    issued = {each.op for each in workload.payloads if _travels(workload, op=each.op)}
    return {one for op in issued for one in MADE_OF.get(op, (op,))}


def _gradients(scene: Scene) -> str:
    met = any(scene.workload.mesh.extent(each.axes) > 1 for each in scene.workload.gradients())
    return "" if met else f"no payload of role dp or edp, once a step, in {scene.workload.name}"


def _role(role: str) -> Callable[[Scene], str]:
    def lacking(scene: Scene) -> str:
        return "" if _travels(scene.workload, role=role) else f"no payload of role {role} in {scene.workload.name}"

    return lacking


def _all_to_all(scene: Scene) -> str:
    return "" if _travels(scene.workload, op="all-to-all") else f"no all-to-all in {scene.workload.name}"


def _split_backward(scene: Scene) -> str:
    kinds = {task.kind for task in scene.workload.tasks}
    return "" if {"dO", "dW"} <= kinds else f"the backward tasks of {scene.workload.name} are whole"


def _hosts(scene: Scene) -> str:
    if scene.topology is None:
        return ""
    hosts = scene.topology.hosts
    met = hosts is not None and int(np.bincount(hosts).max()) > 1
    return "" if met else f"no host of {scene.topology.name} has two ranks"


def _torus(scene: Scene) -> str:
    machine = scene.topology
    if machine is None or (machine.n_nodes == machine.n_ranks and len(machine.axes) == 3):
        return ""
    return f"the ranks of {machine.name} are not linked directly in three dimensions"


def _aggregators(scene: Scene) -> str:
    met = scene.topology is None or network_switches(scene.topology)
    return "" if met else f"no switch between the hosts of {scene.topology.name} adds up"  # type: ignore[union-attr]


def _recording(scene: Scene) -> str:
    return "" if scene.recorded else f"{scene.workload.name} is made from a model, nothing of it was recorded"


def _times(scene: Scene) -> str:
    return "" if scene.measured else f"no step of {scene.workload.name} has a measured time"


NEEDS = {
    "trace.events": Need("a recording of the job", _recording),
    "trace.events.duration_s": Need("a recording with times", _times),
    "workload.gradients": Need("gradients that ranks add up once a step", _gradients),
    "workload.all-to-all": Need("an all-to-all, as of tokens among experts", _all_to_all),
    "workload.pipeline": Need("pipeline stages that send to each other", _role("pp")),
    "workload.tensor-parallel": Need("collectives of tensor parallelism", _role("tp")),
    "workload.split-backward": Need("gradients of inputs and of weights as tasks of their own", _split_backward),
    "workload.recomputed": Need("activations that are computed again"),
    "workload.shapes": Need("the shapes of the matrix products beside a collective"),
    "topology.links": Need("the latency and rate of every link"),
    "topology.hosts": Need("hosts of several ranks", _hosts),
    "topology.torus": Need("ranks linked directly in three dimensions", _torus),
    "topology.aggregators.network": Need("switches or boxes between the hosts that add up", _aggregators),
    "transport.channels": Need("several connections between the same two ranks"),
    "transport.several-networks": Need("several networks at once, such as NVLink and NICs"),
    "transport.sockets": Need("connections that a box on the way may take over"),
    "transport.datagrams": Need("packets of its own, numbered and sent again by itself"),
    "transport.multicast": Need("one packet copied by the switch to all"),
    "transport.rdma": Need("reliable RDMA connections"),
    "transport.infiniband": Need("InfiniBand, with a manager of its trees"),
    "transport.one-sided": Need("stores into the memory of another device"),
    "memory.scratch": Need("buffers besides input and output"),
    "memory.activations": Need("room for activations that are held longer"),
    "memory.weights": Need("room for a second version of the weights"),
    "memory.counted-updates": Need("a memory controller that adds on store and counts"),
    "memory.switch-slots": Need("a pool of slots in the switch"),
    "memory.switch-tables": Need("tables of keys and values in the switch"),
}


def unmet(needs: Iterable[str], ops: Sequence[str], scene: Scene) -> str:
    """Return the first need that a job on a machine does not meet, as ``field: what is there``; "" where all are met.

    ``ops`` are the collectives of an algorithm, of which the job must have one; none for what does no collective.
    """
    issued = collectives(scene.workload)
    if ops and issued.isdisjoint(ops):
        return f"{OPS}: the job has {', '.join(sorted(issued)) or 'none'}, not {', '.join(ops)}"
    for name in needs:
        lacking = NEEDS[name].lacking if name in NEEDS else None
        told = lacking(scene) if lacking else ""
        if told:
            return f"{name}: {told}"
    return ""
