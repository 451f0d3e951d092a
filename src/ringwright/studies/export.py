"""One entry point for every export: a program, a library's rules or a fabric, as the files of another system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright import drafts
from ringwright.errors import UsageError
from ringwright.exports.placement import claim_file
from ringwright.registry import algorithm
from ringwright.studies.simulate import SimulationSpec

if TYPE_CHECKING:
    from ringwright.program import Program
    from ringwright.topology import Topology

TUNER_SIZES = tuple(1 << power for power in range(3, 34))


def export(
    kind: str,
    op: str,
    topology: Topology,
    spelling: str,
    size_bytes: int,
    group: Sequence[int] | None = None,
    root: int = 0,
) -> list[bytes]:
    """Return the files of an export, one, or one per rank; raise UsageError for a kind that is not known."""
    question = SimulationSpec(op, topology, group=group, root=root)
    if kind in FABRIC:
        return [FABRIC[kind](topology)]
    if kind in RULES:
        return [RULES[kind](question, spelling)]
    if kind not in PROGRAM:
        known = ", ".join([*PROGRAM, *RULES, *FABRIC])
        raise UsageError(f"'{kind}' is no export", remedy=f"--to, one of: {known}")
    _, make, knobs = algorithm(spelling)
    return PROGRAM[kind](make(question.collective(size_bytes), topology, **knobs))


def write(files: list[bytes], output: Path, *, force: bool = False) -> list[Path]:
    """Write one file, or ``NAME.RANK.et`` for each of several, and return their paths."""
    several = [output.with_name(f"{output.name}.{rank}.et") for rank in range(len(files))]
    targets = [output] if len(files) == 1 else several
    for target, data in zip(targets, files, strict=True):
        drafts.write(claim_file(target, force=force), data)
    return targets


def _msccl(program: Program) -> list[bytes]:
    from ringwright.exports.msccl_xml import msccl_xml

    return [msccl_xml(program)]


def _mscclpp(program: Program) -> list[bytes]:
    from ringwright.exports.mscclpp_json import mscclpp_json

    return [mscclpp_json(program)]


def _goal(program: Program) -> list[bytes]:
    from ringwright.exports.goal import goal

    return [goal(program)]


def _goal_binary(program: Program) -> list[bytes]:
    from ringwright.exports.goal import goal_binary

    return [goal_binary(program)]


def _chakra(program: Program) -> list[bytes]:
    from ringwright.exports.chakra import chakra_program

    return chakra_program(program)


def _chakra_collective(program: Program) -> list[bytes]:
    from ringwright.exports.chakra import chakra_collective

    return chakra_collective(program.collective)


def _tuner(question: SimulationSpec, spelling: str) -> bytes:
    """NCCL's own choices on this fabric, as rules of its example tuner: a start for rules of one's own."""
    from ringwright.algorithms.hosts import by_host
    from ringwright.algorithms.libraries.nccl_2_4 import NEWEST
    from ringwright.algorithms.libraries.nccl_2_4.system import system_of
    from ringwright.costs.nccl import rules_from_choices, sweep
    from ringwright.exports.nccl_tuner_csv import nccl_tuner_csv

    system = system_of(question.topology, by_host(question.collective(0), question.topology))
    return nccl_tuner_csv(
        rules_from_choices(sweep(question.op, TUNER_SIZES, system, spelling.partition("@")[2] or NEWEST))
    )


def _ompi(*_: object) -> bytes:
    from ringwright.algorithms.libraries.open_mpi.rules import fixed_table
    from ringwright.exports.ompi_rules import to_rules_text

    return to_rules_text(fixed_table())


def _ompi_json(*_: object) -> bytes:
    from ringwright.algorithms.libraries.open_mpi.rules import fixed_table
    from ringwright.exports.ompi_rules import to_rules_json

    return to_rules_json(fixed_table())


def _mpich(*_: object) -> bytes:
    from ringwright.algorithms.libraries.mpich2.rules import selection
    from ringwright.exports.mpich_json import to_mpich_json

    return to_mpich_json(selection())


def _astra(topology: Topology) -> bytes:
    from ringwright.exports.astra_network import astra_network

    return astra_network(topology)


def _json(topology: Topology) -> bytes:
    from ringwright.exports.topology_json import topology_json

    return topology_json(topology)


PROGRAM: dict[str, Callable[[Program], list[bytes]]] = {
    "msccl-xml": _msccl,
    "mscclpp-json": _mscclpp,
    "goal": _goal,
    "goal-binary": _goal_binary,
    "chakra": _chakra,
    "chakra-collective": _chakra_collective,
}
RULES: dict[str, Callable[[SimulationSpec, str], bytes]] = {
    "nccl-tuner-csv": _tuner,
    "ompi-rules": _ompi,
    "ompi-rules-json": _ompi_json,
    "mpich-json": _mpich,
}
FABRIC: dict[str, Callable[[Topology], bytes]] = {"astra-network": _astra, "topology-json": _json}
