"""The entry point for program files: which format it is, the program in it, and all that is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.findings import FileFinding, FileFindings
from ringwright.formats.sources.programs.msccl_xml import parse_msccl_xml
from ringwright.formats.sources.programs.mscclpp_json import parse_mscclpp_json
from ringwright.ground.errors import InfeasibleError, InputError
from ringwright.model.threadblocks import Schedule
from ringwright.model.threadblocks.mscclpp import COLLECTIVES, DIALECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

SCHEMA = "ringwright.verify/1"
# The numbers of the rules in the description of the formats.
CODES = {
    "xml": "V1",
    "json": "V1",
    "attribute": "V2",
    "gpus": "V3",
    "chunks": "V4",
    "limits": "V5",
    "peer": "V6",
    "match": "V7",
    "index": "V8",
    "dependency": "V9",
    "deadlock": "V10",
    "undefined": "V11",
    "result": "V12",
    "double": "V12",
    "conflict": "V13",
    "race": "V13",
    "window": "V14",
}
_PARSERS = {"msccl-xml": parse_msccl_xml, "mscclpp-json": parse_mscclpp_json}


def read_program(path: str | Path, *, size_bytes: int | None = None, dtype: str = "float32") -> Program:
    """Return the program of an MSCCL XML file or an MSCCL++ plan (told by its first character).

    ``size_bytes`` is the size of the call; without it the smallest that the file admits. Raises ProgramError naming the first
    broken rule and where it is, InputError where the file cannot be read or is of neither format.
    """
    findings = FileFindings(path)
    program = _PARSERS[sniff(path)](path, findings, size_bytes=size_bytes, dtype=dtype)
    if program is None:
        raise findings.error()
    return program


def sniff(path: str | Path) -> str:
    """Return ``msccl-xml`` or ``mscclpp-json``; raise InputError for anything else."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    formats = {b"<": "msccl-xml", b"{": "mscclpp-json"}
    if start not in formats:
        remedy = "give an MSCCL XML file or an MSCCL++ execution plan"
        raise InputError("is no program in a known format", where=str(path), remedy=remedy)
    return formats[start]


def verify_file(
    path: str | Path, topology: Topology | None = None, seat: Callable[[Program, Topology], Program] | None = None
) -> dict[str, Any]:
    """Return what is wrong with a program file: ``valid``, its collective and ranks (null where unknown), errors, warnings.

    Each error has ``rule``, ``code``, ``rank``, ``step``, ``chunk`` and ``line`` (null where a number does not apply) and a
    ``message``; steps count within a thread block, which the message names. A file that claims to work both in place and out
    of place is checked both ways. What it does in switches is held to what those of ``topology`` can do; ``seat`` says which.
    Raises InputError where the file cannot be read or is of no known format.
    """
    findings = FileFindings(path)
    format_ = sniff(path)
    program = _PARSERS[format_](path, findings)
    if program is not None:
        on_machine = program if topology is None or seat is None else seat(program, topology)
        _check(on_machine, findings, topology)
        if format_ == "msccl-xml" and _claims_both(program) and not findings.errors:
            other = parse_msccl_xml(path, FileFindings(path), in_place=True)
            if other is not None:
                _check(other, findings)
    return {
        "schema": SCHEMA,
        "file": str(path),
        "format": format_,
        "valid": not findings.errors,
        "name": None if program is None else program.name,
        "collective": None if program is None else _collective(program),
        "ranks": None if program is None else program.p,
        "errors": [_row(each) for each in findings.errors],
        "warnings": [_row(each) for each in findings.warnings],
        "more_errors": findings.dropped,
    }


def _collective(program: Program) -> str:
    """Return our spelling of what the file does, or ``custom``."""
    said = program.knobs.get("coll")
    is_plan = isinstance(program.schedule, Schedule) and program.schedule.dialect == DIALECT
    return "custom" if said == "custom" or (is_plan and said not in COLLECTIVES) else program.collective.op


def _check(program: Program, findings: FileFindings, topology: Topology | None = None) -> None:
    from ringwright.model.validity import check

    try:
        findings.extend(check(program, most=50, warnings=True, topology=topology))
    except InfeasibleError as error:
        findings.add("limits", f"{error.what}; not checked further")


def _claims_both(program: Program) -> bool:
    schedule = program.schedule
    return (
        isinstance(schedule, Schedule)
        and schedule.attributes.get("inplace") == schedule.attributes.get("outofplace") == "1"
    )


def _row(finding: FileFinding) -> dict[str, Any]:
    violation = finding.violation
    where = {name: number if number >= 0 else None for name, number in violation.place()}
    return {
        "rule": violation.rule,
        "code": CODES.get(violation.rule),
        **where,
        "line": finding.line or None,
        "message": violation.message,
    }
