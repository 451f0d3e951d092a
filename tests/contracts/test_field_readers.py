"""Who reads each field of each noun: outside the module that declares it, and not to copy, compare, print or save it.

``python tests/contracts/test_field_readers.py`` prints the list. The nouns' attribute access is watched while rules, engines, real ranks' plans and exports work on small cases; what they do
through a noun's own methods counts as theirs. That a column of a Trace is noticed is asked in ``test_trace_fields``.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ringwright
from algebra_cases import CASES
from ringwright.bounds.lower_bounds import bounds
from ringwright.engines.choose import simulate
from ringwright.execute.job import AskedCollective
from ringwright.execute.plan import plans
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.formats.exports import chakra_workload
from ringwright.formats.exports.astra_network import astra_network
from ringwright.formats.exports.goal import goal
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.formats.exports.mscclpp_json import mscclpp_json
from ringwright.formats.exports.topology_json import topology_json
from ringwright.formats.settings import ddp_buckets
from ringwright.formats.sources.programs.program_files import verify_file
from ringwright.graph.algebra import RULES, replayed
from ringwright.graph.algebra.equality import prove
from ringwright.ground.errors import RingwrightError
from ringwright.model import collective, interpreter, program, registry, streams, topology, validity, values, workload
from ringwright.model.validity import workloads
from ringwright_lab.contracts import scheduler as scheduler_contract
from ringwright_lab.contracts.closed_form import closed_form

pytestmark = pytest.mark.once
NOUNS: tuple[ModuleType, ...] = (collective, program, streams, topology, values, workload)
# What reads a field does something with it; all other modules pass it on, show it or save it.
READING = (
    "ringwright.bounds",
    "ringwright.costs",
    "ringwright.engines",
    "ringwright.execute",
    "ringwright.formats.exports",
    "ringwright.graph.algebra",
    "ringwright.model.interpreter",
    "ringwright.model.rewrites",
    "ringwright.model.validity",
    "ringwright_lab.contracts.algorithm_checks",
    "ringwright_lab.contracts.closed_form",
    "ringwright_lab.network",
)
COPYING = ("ringwright.formats.exports.topology_json", "ringwright.formats.exports.workload_json")
SHOWING = {"__repr__", "_repr_html_", "__eq__", "__hash__", "__init__", "__post_init__", "__getstate__", "__reduce__"}


def classes() -> Iterator[type]:
    """Yield the public dataclasses of the nouns."""
    for module in NOUNS:
        for name, each in vars(module).items():
            if isinstance(each, type) and is_dataclass(each) and each.__module__ == module.__name__ and name[0] != "_":
                yield each


def reader(frame: FrameType | None, own: str) -> str:
    """Return the module that asks for a field, seen through methods of the noun's own module; nothing for copies."""
    while frame is not None and frame.f_globals.get("__name__", "") in (own, __name__):
        if frame.f_code.co_name in SHOWING:
            return ""
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


Readers = dict[tuple[str, str], set[str]]


@contextmanager
def watched() -> Iterator[Readers]:
    """Note who reads which field of which noun."""
    seen: Readers = defaultdict(set)
    kept = {each: each.__getattribute__ for each in classes()}

    def watch(noun: type) -> Callable[[Any, str], Any]:
        names, plain, own = {each.name for each in fields(noun)}, kept[noun], noun.__module__

        def read(thing: Any, name: str) -> Any:
            if name in names:
                seen[noun.__name__, name].add(reader(sys._getframe(1), own))
            return plain(thing, name)

        return read

    try:
        for noun in kept:
            noun.__getattribute__ = watch(noun)  # type: ignore[method-assign, assignment]
        yield seen
    finally:
        for noun in kept:
            del noun.__getattribute__


def quietly(question: Callable[..., Any], *given: Any) -> None:
    """Ask; what is refused has been read as well."""
    with suppress(RingwrightError):
        question(*given)


def programs() -> Iterator[tuple[program.Program, topology.Topology]]:
    """Yield a few programs with what programs can have, on machines with what machines can have."""
    star = fabric("switch:4,sharp=true")
    measured = replace(fabric("dgx-h100:2,sharp=true"), message_s={"nic": 2e-6}, occupying=("nic",), reduce_rate=1e11)
    faulty = apply(star, ["link rank0>switch loss 0.1% at 5us", "rank 1 slow 2x at 1us", "link rank2>switch rate 50%"])
    shared = replace(star, groups=(topology.SharedCapacity("plane", 1e11, np.arange(star.n_links)),))
    for spelling, machine, op in (
        ("ring:channels=2", shared, "all-reduce"),
        ("collnet-direct", faulty, "all-reduce"),
        ("binomial", star, "broadcast"),
        ("nvls", fabric("dgx-h100:1"), "all-reduce"),
        ("blueconnect", measured, "all-reduce"),
        ("nvls-collnet", measured, "all-reduce"),
        ("nccl-2-4", measured, "all-gather"),
        ("linear", star, "scan"),
        ("plink", measured, "all-reduce"),
    ):
        yield made(spelling, machine, op), machine
    lossy, in_switch = (
        replace(star, loss=np.full(star.n_links, 1e-3)),
        made("collnet-direct:slots=64", star, "all-reduce"),
    )
    for rule in (
        {"versions": 2, "loss": "host-timer", "timeout_s": 1e-3, "window": 2, "codec": "block-exponent"},
        {"loss": "resend-to-server", "timeout_s": 1e-3, "fallback": 0},
    ):
        yield replace(in_switch, streams=(replace(in_switch.streams[0], **rule),)), lossy  # type: ignore[arg-type]


def made(spelling: str, machine: topology.Topology, op: str) -> program.Program:
    _, make, knobs = registry.algorithm(spelling)
    asked = collective.Collective(op, range(machine.n_ranks), 1 << 16, commutative=op != "scan")
    return make(asked, machine, **knobs)


def on_programs(folder: Path) -> None:
    """Ask rules, interpreter, engines, bounds, plans and exports about each program."""
    for each, machine in programs():
        quietly(partial(validity.check, each, topology=machine, warnings=True))
        quietly(lambda: interpreter.run(each, interpreter.inputs(each.collective)))  # noqa: B023 - asked at once
        for engine in ("auto", "events", "flows", "recurrence", "closed-form", "packets"):
            quietly(simulate, each, machine, engine)
        quietly(partial(bounds, each.collective, machine, exact=False))
        for export in (plans, msccl_xml, mscclpp_json, goal):
            quietly(export, each)
        closed_form(each, machine)
        quietly(astra_network, machine)
    path = folder / "program.xml"
    path.write_bytes(msccl_xml(made("ring", fabric("switch:4"), "all-reduce")))
    assert verify_file(path)["valid"]


def on_jobs() -> None:
    """Hold each scheduler to its laws on a small job, of every kind in turn, and run steps of models with parallel forms."""
    for at, system in enumerate(registry.schedulers()):
        job = scheduler_contract.JOBS[at % len(scheduler_contract.JOBS)]
        scheduler_contract.check(scheduler_contract.SchedulerCase(system.slug, job, "all-reduce", 3))
    for name, gpus, parallel, policy in (
        ("gpt2-small", 8, "tp2,pp2", "pytorch-ddp"),
        ("gpt2-small", 8, "fsdp", "pace"),
        ("vgg16", 4, "", "poseidon"),
    ):
        quietly(step, name, gpus, parallel, policy)


def step(name: str, gpus: int, parallel: str, policy: str) -> None:
    """Check, simulate and export one step of a model."""
    each = ringwright.job(name, gpus=gpus, **({"parallel": parallel} if parallel else {}))
    workloads.check(each)
    ringwright.simulate(each, f"switch:{gpus}", policy=policy)
    quietly(ddp_buckets.as_json, each)
    quietly(chakra_workload.of_each_rank, each)


def on_rewritten_steps() -> None:
    """Rewrite steps by each rule, prove that they compute the same, and apply what was applied again."""
    for case in CASES:
        before = after = case.make(min(case.sizes))
        for rule, at, knobs in case.rules:
            after = RULES[rule](after, at, **knobs)
        assert prove(before, after, draws=1).equal
        assert replayed(before, after.applied) == after


def with_values() -> workload.Workload:
    """Return a step whose tasks say what they read, write and compute: forward, backward, update, and a sum of gradients."""
    tasks = (
        workload.Task("F", "all", "F", reads=(("weights", 1),), writes=("kept",), work=values.Work(8.0, 8, 8, "copy")),
        workload.Task("B", "all", "B", slot=("B", 0), reads=(("kept", 0), ("weights", 1)), writes=("sums",)),
        workload.Task("U", "all", "U", slot=("U", 0), per="step", reads=(("gradient", 0),), writes=("weights",)),
    )
    partial_sums = (values.Placement("dp", values.PARTIAL),)
    sliced = (values.Placement("dp", values.SLICED, "rows"),)
    of = (
        values.Value("weights", "all", 8, (("rows", 2),), kind="parameter", per="step"),
        values.Value("kept", "all", 8, (("rows", 2),), sliced),
        values.Value("sums", "all", 8, (), partial_sums, kind="gradient", per="step"),
        values.Value("gradient", "all", 8, kind="gradient", per="step"),
    )
    edges = (workload.Edge("F", "B"), workload.Edge("U", "F", 1))
    same = ("all", "all-reduce", 8, ("dp",), "dp", ("B",), (("U", 0),))
    gradient = workload.Payload("g", *same, source="sums", result="gradient")
    mesh, every = workload.Mesh((("dp", 2),)), (workload.RankClass("all"),)
    return workload.Workload("chain", mesh, every, tasks, edges, (gradient,), values=of)


WITHOUT_READERS = {
    "Topology.provenance": "told with each answer",
    "Topology.fault_lines": "told with each answer: faults act by their rows",
    "Topology.calibration": "told with each answer: its numbers are in the links",
    "Topology.fault_seed": "told with each answer: what it drew is in the rows",
    "Workload.assumptions": "told with each answer",
    "Step.label": "names phases in pictures",
    "Payload.samples": "poseidon decides by it what to send",
    "Applied.change": "told to who asks what a rule changed; the rules' tests hold it to the graph",
    "Change.launches": "told likewise",
    "Change.traffic_bytes": "told likewise",
    "Change.copied_bytes": "told likewise",
    "Value.dtype": "memory and wire count bytes; nothing changes a type yet",
}


def readers(folder: Path) -> dict[str, list[str]]:
    """Return the modules that read each field of each noun."""
    with watched() as seen:
        on_programs(folder)
        on_jobs()
        on_rewritten_steps()
        assert workloads.check(with_values()) == []
        AskedCollective.of(collective.Collective("all-reduce", range(2), 8, in_place=True))
    every = [(noun.__name__, each.name) for noun in classes() for each in fields(noun)]
    return {f"{noun}.{name}": sorted(filter(None, seen.get((noun, name), ()))) for noun, name in every}


def test_every_field_has_a_reader(tmp_path: Path) -> None:
    table = readers(tmp_path)
    unread = {name for name, modules in table.items() if not any(map(reads, modules))}
    told = [f"{name} is read by {', '.join(table[name]) or 'nobody'}" for name in sorted(unread)]
    assert unread <= WITHOUT_READERS.keys(), "\n".join(told)
    assert WITHOUT_READERS.keys() <= table.keys(), "a field that is gone"


def reads(module: str) -> bool:
    """Say whether a module does something with what it reads: a rule, an engine, a check or an export."""
    return module.startswith(READING) and module not in COPYING


def test_what_is_only_kept_is_found() -> None:
    """A field that is copied, compared, printed and saved has no reader; one that an engine asks for has."""
    before = topology.Capability(passes=3)
    with watched() as seen:
        assert replace(before, passes=2) != before
        repr(before)
        topology_json(replace(fabric("switch:2"), aggregators={2: before}))
    assert not any(map(reads, seen["Capability", "passes"]))
    with watched() as seen:
        program = made("collnet-direct", fabric("switch:4,sharp=true"), "all-reduce")
        simulate(program, fabric("switch:4,sharp=true"))
    assert "ringwright.engines.switch_slots" in seen["Capability", "passes"]


if __name__ == "__main__":
    with TemporaryDirectory() as made_for_it:
        for field, by in readers(Path(made_for_it)).items():
            print(f"{field}: {', '.join(filter(reads, by)) or WITHOUT_READERS.get(field, 'nobody')}")
