"""One entry point for every export: a program, a library's rules or a fabric, as the files of another system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.calls import rules
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.formats import exports
from ringwright.formats.exports.placement import claim_file
from ringwright.ground import drafts
from ringwright.model.registry import algorithm

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

TAKES = ("program", "collective", "topology")


def known() -> tuple[str, ...]:
    """Return the name of every export of a program, of a library's rules and of a fabric."""
    listed = exports.exports(*TAKES)
    return (*listed, *(each.name for each in exports.in_folder(rules.__name__)))


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
    target = exports.find(kind, *TAKES, also=exports.in_folder(rules.__name__))
    question = SimulationSpec(op, topology, group=group, root=root)
    if target.takes == "topology":
        return [*target.files(topology)]
    if target.takes == "question":
        return [*target.files(question, spelling)]
    _, make, knobs = algorithm(spelling)
    program = make(question.collective(size_bytes), topology, **knobs)
    return [*target.files(program if target.takes == "program" else program.collective)]


def write_program(program: Program, kind: str, output: Path, *, force: bool = False) -> list[Path]:
    """Write a Program, or its Collective where that is what the format holds, and return the files' paths."""
    target = exports.find(kind, "program", "collective")
    return write([*target.files(program if target.takes == "program" else program.collective)], output, force=force)


def write(files: list[bytes], output: Path, *, force: bool = False) -> list[Path]:
    """Write one file, or ``NAME.RANK.et`` for each of several, and return their paths."""
    several = [output.with_name(f"{output.name}.{rank}.et") for rank in range(len(files))]
    targets = [output] if len(files) == 1 else several
    for target, data in zip(targets, files, strict=True):
        drafts.write(claim_file(target, force=force), data)
    return targets
