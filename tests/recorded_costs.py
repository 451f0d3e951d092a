"""What the cost models answer over a grid of questions, so that a change of any answer is seen.

``python tests/recorded_costs.py`` writes ``costs/recorded_costs.json``: a digest of the answers to each group of questions.
``python tests/recorded_costs.py "2.21.5 dgx-h100"`` prints the answers of one group: two commits compared show what changed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path
from types import ModuleType

from ringwright.bounds.lower_bounds import bounds
from ringwright.costs import gpus, nccl
from ringwright.costs.nccl import node_types
from ringwright.costs.nccl.constants import constants
from ringwright.costs.nccl.occupancy import occupancy
from ringwright.costs.nccl.timing import NcclOverride, Stages, stages
from ringwright.fabrics import fabric
from ringwright.ground.errors import RingwrightError
from ringwright.model import links
from ringwright.model.collective import Collective
from ringwright.model.stages import LinkCosts, ServerCosts

RECORD = Path(__file__).parent / "costs" / "recorded_costs.json"
SIZES = (1 << 10, 96 << 10, 2 << 20, 1 << 30)
FABRICS = ("dgx-h100:2", "ndv2:2", "leaf-spine:8", "torus:4x4", "switch:6", "fat-tree:4")
TIMED = ("2.12.12", "2.21.5", "2.28.9")
OPS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all")


def number(value: float | None) -> str:
    """Return eight digits: enough to see every change of a constant, few enough for the libraries of other machines."""
    return "-" if value is None else f"{value:.8g}"


def asked(question: Iterator[str]) -> list[str]:
    """Return the answers, the last of them the refusal where there is one."""
    answers: list[str] = []
    try:
        answers.extend(question)
    except RingwrightError as error:
        answers.append(f"refused: {error}")
    return answers


def systems(name: str) -> Iterator[tuple[str, nccl.NcclSystem]]:
    """Yield systems of one kind of node: one, two, five and a full fabric, with and without reduction in the network."""
    domain = nccl.NODE_TYPES[name].domain
    for nodes in (1, 2, 5 if domain == 1 else domain, 16 * domain):
        for collnet in (False, True) if nodes > 1 else (False,):
            yield f"{nodes} nodes{' collnet' if collnet else ''}", nccl.named_system(name, nodes, collnet=collnet)


def of_release(release: str, name: str) -> Iterator[str]:
    """Yield tables, reasons, predictions, choices, cuts and stages of a release on nodes of a kind."""
    held = constants(release)
    for where, system in systems(name):
        yield f"{where}: {system}"
        held_tables = nccl.tables(system, release)
        for key, latency in held_tables.latency_us.items():
            yield f"{' '.join(key)} {number(latency)} {number(held_tables.bandwidth_gbs[key])} {held_tables.why.get(key)}"
        for op in nccl.OPS:
            for size in SIZES:
                yield f"{op} {size}: " + " ".join(
                    f"{'/'.join(pair)} {number(time_us)}"
                    for pair, time_us in nccl.costs(op, size, system, release).items()
                )
        for (op, algorithm, protocol), speed in held_tables.bandwidth_gbs.items():
            if speed and system.ranks > 1:
                channels, threads = occupancy(held, system, algorithm, protocol, SIZES[1])
                cut = nccl.chunking(op, algorithm, protocol, SIZES[2], max(channels, 1), system, release)
                yield f"{op} {algorithm} {protocol} {channels} {threads} {cut}"


def timed(release: str, name: str) -> Iterator[str]:
    """Yield what the stages of each collective hold, with the algorithm chosen and with others forced."""
    kind = nccl.NODE_TYPES[name]
    for where, system in systems(name):
        for op in (*nccl.OPS, "all-to-all"):
            for forced in (None, *map(NcclOverride, ("ring", "tree", "nvls", "nvls_tree"))):
                told = asked(rows(stages(op, size, kind, system, release, forced)) for size in SIZES[1:3])
                yield f"{where} {op} {forced}: {told}"


def rows(held: Stages) -> str:
    """Return the coefficients of stages, digit by digit."""
    return " | ".join(" ".join(map(number, row)) for row in (held.serial, *held.parallel))


def of_bounds(spelled: str) -> Iterator[str]:
    """Yield every bound of every collective on a fabric, with the cut that gives it."""
    topology = fabric(spelled)
    p = topology.n_ranks
    for op in OPS:
        for in_network in (False, True):
            for each in bounds(Collective(op, range(p), 1 << 20), topology, in_network=in_network):
                yield f"{op} {in_network} {each.kind} {number(each.time_s)} {each.ground} {each.certificate}"


def of_hardware(module: ModuleType) -> Iterator[str]:
    """Yield every figure that a module holds as a table."""
    for name, held in sorted(vars(module).items()):
        if not name.startswith("__") and isinstance(held, dict | tuple):
            yield f"{name} {held!r}"


def of_stages() -> Iterator[str]:
    """Yield the stages of one link, of a ring of them, and of parameter servers."""
    models = (LinkCosts(1e9, 2e-6, 1e-6), LinkCosts(1e9, 2e-6, 1e-6, ring=True), ServerCosts(1e9, 1e-6, 3e9, 2e-6))
    for model in models:
        for op in OPS:
            for ranks in ((0,), (0, 1), tuple(range(6))):
                yield f"{op} {asked(str([astuple(each) for each in model.stages(op, size, ranks, 'dp')]) for size in SIZES)}"


def groups() -> dict[str, Callable[[], Iterator[str]]]:
    """Return the questions by name of their group."""
    found: dict[str, Callable[[], Iterator[str]]] = {}
    for name in nccl.NODE_TYPES:
        for release in nccl.releases():
            found[f"{release} {name}"] = partial(of_release, release, name)
        for release in TIMED:
            found[f"stages of {release} {name}"] = partial(timed, release, name)
    for spelled in FABRICS:
        found[f"bounds of {spelled}"] = partial(of_bounds, spelled)
    for module in (gpus, links, node_types):
        found[f"tables of {module.__name__.rpartition('.')[2]}"] = partial(of_hardware, module)
    found["stages of links and servers"] = of_stages
    return found


def digest(question: Callable[[], Iterator[str]]) -> str:
    """Return ten hexadecimal digits of all answers."""
    return hashlib.sha256("\n".join(asked(question())).encode()).hexdigest()[:10]


if __name__ == "__main__":
    if sys.argv[1:]:
        print("\n".join(asked(groups()[sys.argv[1]]())))
    else:
        RECORD.write_text(json.dumps({name: digest(question) for name, question in groups().items()}, indent=0) + "\n")
