"""Random workloads for the tests of the job engine's layout: every part that it reads, in small numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from ringwright.model.stages import LINK, Stage
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

ROLES = ("dp", "tp", "pp")
KINDS = ("F", "B", "U", "CTRL")


class Costs:
    """Stages that depend on all that they are asked for: of one phase or two, over links or over each rank's own."""

    def __init__(self, seed: int) -> None:
        self.seed, self.asked = seed, 0

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        self.asked += 1
        if len(ranks) < 2:
            return (Stage(0.0, loads=()),)
        draw = random.Random(repr((self.seed, op, ranks, role)))
        links = tuple((link, draw.choice([0.2, 0.5, 0.7, 1.0])) for link in draw.sample(range(6), draw.randint(1, 4)))
        phases = ("push", "pull") if op == "push-pull" else ("",)
        loads = draw.choice([LINK, (("nic", 0.5),), ()])
        rate, latency_s = draw.choice([1e6, 3e6]), draw.choice([0.0, 1e-5])
        on = links if draw.random() < 0.7 else ()
        return tuple(Stage(size_bytes / rate, latency_s, phase, loads, 0.1, on) for phase in phases)


class Draw:
    """The choices of one random workload on a mesh of two or three axes, of one to four classes of ranks."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        r = self.r
        self.mesh = Mesh((("pp", r.choice([1, 2, 2, 3])), ("dp", r.choice([2, 3])), ("tp", r.choice([1, 2]))))
        self.stages = self.mesh.sizes["pp"]
        self.batches = r.choice([1, 2, 3])
        named = [f"s{at}" for at in range(self.stages)]
        self.classes = tuple(RankClass(name, {"pp": at}) for at, name in enumerate(named))
        self.tasks: list[Task] = []
        for each in self.classes:
            self.tasks += self._tasks(each.name)

    def _tasks(self, of: str) -> list[Task]:
        r, made = self.r, []
        for at in range(r.randint(2, 4)):
            slot = ("F", r.choice([0, 0, 1]))
            made.append(self._task(f"{of}.F{at}", of, "F", slot, "micro-batch", at))
            made.append(self._task(f"{of}.B{at}", of, "B", ("B", slot[1]), "micro-batch", at))
            if r.random() < 0.7:
                made.append(self._task(f"{of}.U{at}", of, "U", ("U", 0), "step", at))
        if r.random() < 0.3:
            made.append(self._task(f"{of}.ctrl", of, "CTRL", ("C", 0), r.choice(["step", "micro-batch"]), 0))
        return made

    def _task(self, name: str, of: str, kind: str, slot: tuple[str, int], per: str, layer: int) -> Task:
        r = self.r
        demands: tuple[tuple[str, float], ...] = ()
        if r.random() < 0.2:
            demands = (("slots", -1.0),) if kind == "CTRL" else (("tiles", 200.0), ("slots", 0.5), ("slots", -0.5))
        tag = r.choice(["", "", "busy", "other"])
        seconds, stream = r.randint(0, 9) * 1e-3, r.choice(["compute", "compute", "side"])
        return Task(name, of, kind, seconds, layer, slot, per, stream, tag, demands)

    def edges(self) -> tuple[Edge, ...]:
        r, made = self.r, []
        for each in self.classes:
            mine = [task for task in self.tasks if task.of == each.name]
            for at, task in enumerate(mine[1:], 1):
                if r.random() < 0.4:
                    made.append(Edge(r.choice(mine[:at]).name, task.name, r.choice([0, 0, 0, 1])))
        return tuple(made)

    def payloads(self) -> tuple[Payload, ...]:
        r, made = self.r, []
        for each in self.classes:
            mine = [task for task in self.tasks if task.of == each.name]
            made += [self._payload(f"{each.name}.p{at}", each.name, mine) for at in range(r.randint(2, 6))]
        return tuple(made)

    def _payload(self, name: str, of: str, mine: list[Task]) -> Payload:
        r = self.r
        role = r.choice(("dp", *ROLES) if self.stages > 1 else ROLES[:2])
        peers = [each.name for each in self.classes if each.name != of]
        op, peer = ("send-recv", r.choice(peers)) if role == "pp" else (r.choice(["all-reduce", "push-pull"]), "")
        takers = [task for task in self.tasks if task.of == peer] if peer else mine
        joint = (r.choice(peers),) if peers and role == "dp" and r.random() < 0.2 else ()
        return Payload(
            name,
            of,
            op,
            r.choice([0, 3000, 8000, 20_000]),
            {"dp": ("dp",), "tp": ("tp",), "pp": ("pp",)}[role] if not joint else ("pp", "dp"),
            role,
            tuple(task.name for task in r.sample(mine, r.randint(0, 2))),
            tuple((task.name, r.choice([0, 1])) for task in r.sample(takers, r.randint(0, 2))),
            r.choice(["step", "step", "step", "micro-batch"]) if role == "dp" else "micro-batch",
            r.randint(0, 3),
            elements=r.choice([0, 1000]),
            merges=r.choice(["", "all", "all", "all"]) if role == "dp" else "",
            peer=peer,
            joint=joint,
        )

    def order(self) -> dict[str, tuple[tuple[str, int, int], ...]]:
        r, made = self.r, {}
        for each in self.classes:
            slots = dict.fromkeys(
                task.slot for task in self.tasks if task.of == each.name and task.per == "micro-batch"
            )
            listed = [(*slot, batch) for slot in slots for batch in range(self.batches)]
            if r.random() < 0.4:
                made[each.name] = tuple(r.sample(listed, len(listed)))
        return made

    def queue(self) -> Queue:
        r = self.r
        windows: dict[str, tuple[float, str]] = {}
        for role in ROLES:
            if r.random() < 0.5:
                windows[role] = (float(r.choice([1, 4000, 30_000])), r.choice(["bytes", "operations"]))
        gates = (Gate(1, 0), Gate(0, "busy"), Gate(1, 1))[: r.randint(0, 3)]
        return Queue(
            windows=windows, traffic={"dp": 1} if r.random() < 0.5 else {}, gates=gates, issue_s=r.choice([0, 1e-6])
        )


def workload(seed: int) -> Workload:
    """Return the workload of a seed, without a policy."""
    draw = Draw(seed)
    resources = (Resource("slots", "tokens", 1.0),)
    parts: dict[str, Any] = {"edges": draw.edges(), "payloads": draw.payloads(), "resources": resources}
    parts["order"] = draw.order()
    return Workload(f"random {seed}", draw.mesh, draw.classes, tuple(draw.tasks), micro_batches=draw.batches, **parts)


def rewrites(r: random.Random) -> tuple[Rewrite, ...]:
    """Return some rewrites, one after another."""
    made = []
    if r.random() < 0.8:
        made.append(Rewrite("fuse", ("dp",), {"caps_bytes": (float(r.choice([9000, 9000, 40_000])),)}))
    if r.random() < 0.2:
        made.append(Rewrite("select", ("dp",), {"share": 0.5, "chunk_elements": 100}))
    if r.random() < 0.7:
        made.append(
            Rewrite("partition", ("dp", "tp")[: r.randint(1, 2)], {"size_bytes": float(r.choice([2500, 7000]))})
        )
    return tuple(made)


def policy(seed: int, made: Workload) -> Workload:
    """Return the workload with the policy of a seed: any parts of it."""
    r, draw = random.Random(seed), Draw(seed)
    parts: dict[str, Any] = {}
    if r.random() < 0.7:
        parts["rewrites"] = rewrites(r)
    if r.random() < 0.6:
        keys = {each.name: r.randint(0, 3) for each in made.payloads if r.random() < 0.5}
        parts["queue"] = replace(draw.queue(), keys=keys if r.random() < 0.5 else {}, random=r.choice([None, None, 7]))
    if r.random() < 0.5:
        parts["boundary"] = r.choice(["barrier", "layer", "reads"])
    if r.random() < 0.3:
        parts["agreement"] = r.choice(["index", "program"])
    return replace(made, policy=replace(Policy(), **parts))
