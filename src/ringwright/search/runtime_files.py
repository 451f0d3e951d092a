"""What was synthesised as files of a runtime: one program, or of several sizes a folder with a program for each region.

A program holds from its own size up to the next one asked about; the first also below, the last also above. Neighbours that
are the same program are one file. Where another algorithm is faster than all that was found, it is written, as far as the
format can carry it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.calls import export_files
from ringwright.engines.choose import simulate
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.formats.exports.mscclpp_json import mscclpp_json
from ringwright.formats.exports.placement import claim_folder
from ringwright.formats.settings.msccl_config import MOST_FILES, msccl_config
from ringwright.ground import drafts
from ringwright.ground.errors import ProgramError, RingwrightError, UsageError
from ringwright.ground.units import format_size, parse_size
from ringwright.model import registry
from ringwright.model.threadblocks.msccl_load import MscclLoad
from ringwright.search.question import searched

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.search.study import Synthesised

MOST_TRIED = 200_000  # moves of a program that is scheduled to see whether a format can carry it
LARGEST = (1 << 64) - 1  # that an MSCCL++ plan names
SUFFIX = {"msccl-xml": ".xml", "mscclpp-json": ".json"}
FOLDER, CONFIG = "programs", "msccl-config.xml"
EVEN = "forest:even=on"  # forests that runtimes can read: their chunks are of one size


@dataclass(frozen=True)
class RegionFile:
    """A program in its file, and the sizes of calls in bytes that it is for: from ``low`` up to ``high`` (0: all larger)."""

    algorithm: str
    low: int
    high: int
    data: bytes
    passed_over: tuple[str, ...] = ()  # faster ones that the format cannot carry, each with its reason


@dataclass(frozen=True)
class WrittenRegions:
    """The files of a folder, the regions that they are for, and how a runtime is told of them."""

    paths: tuple[Path, ...]
    regions: tuple[RegionFile, ...]
    hints: tuple[str, ...]


def target(to: str, output: Path | None, sizes: int) -> Path:
    """Return where programs are to be written, before anything is searched.

    Raises UsageError where no output is named, or several sizes are to be written in a format that says no sizes.
    """
    if output is None:
        raise UsageError("no file is named for the program", remedy=f"--to {to} -o FILE")
    if sizes > 1 and to not in SUFFIX:
        raise UsageError(
            f"a file of {to} does not say which sizes it is for, and there are {sizes}",
            remedy=f"one --size, or --to {' or '.join(SUFFIX)}",
        )
    return output


def write(result: Synthesised, to: str, output: Path, *, force: bool = False) -> WrittenRegions:
    """Write the best program in the format of another system; of several sizes a folder of them, with what picks one by size."""
    if len(result.programs) == 1:
        ((size, program),) = result.programs.items()
        said: tuple[str, ...] = ()
        if to in SUFFIX:
            name, program, said = _fastest(result, size, to)
            said = (*said, f"what is written is {name}'s") if said else ()
        return WrittenRegions(tuple(export_files.write_program(program, to, output, force=force)), (), said)
    files = regions(result, to)
    folder = claim_folder(output, force=force)
    with drafts.draft_folder(folder) as draft:
        names = [_name(result, each, to) for each in files]
        (draft / FOLDER).mkdir()
        for name, each in zip(names, files, strict=True):
            drafts.write(draft / FOLDER / name, each.data)
        if to == "msccl-xml":
            drafts.write(draft / CONFIG, msccl_config(_loads(folder, names, files)))
    paths = [folder / FOLDER / name for name in names]
    return WrittenRegions(
        (*paths, *((folder / CONFIG,) if to == "msccl-xml" else ())), tuple(files), _hints(folder, to, len(files))
    )


def refused(program: Program, to: str) -> str:
    """Return why a format cannot carry a program; empty where it can, or where there is too much of it to try in passing."""
    if sum(block.count for step in program.steps() for block in step.blocks) > MOST_TRIED:
        return ""
    try:
        _file(program, to, (0, 0))
    except RingwrightError as error:
        return error.what
    return ""


def regions(result: Synthesised, to: str) -> list[RegionFile]:
    """Return the program of each region of sizes, in the format of a runtime that picks programs by size."""
    sizes = sorted(result.programs)
    carried = [_fastest(result, size, to) for size in sizes]
    made: list[RegionFile] = []
    begin = 0
    for at, (algorithm, program, passed_over) in enumerate(carried):
        is_last = at + 1 == len(sizes)
        if not is_last and _file(program, to, (0, 0)) == _file(carried[at + 1][1], to, (0, 0)):
            continue
        low, high = sizes[begin] if begin else 0, 0 if is_last else sizes[at + 1]
        made.append(RegionFile(algorithm, low, high, _file(program, to, (low, high)), passed_over))
        begin = at + 1
    return made


def _fastest(result: Synthesised, size: int, to: str) -> tuple[str, Program, tuple[str, ...]]:
    """Return the fastest program of a size that the format can carry and which faster ones it cannot; ProgramError for none."""
    times = [(row.time_us, row.method) for row in result.rows if row.size_bytes == size]
    times += [
        (row.time_us, row.algorithm) for row in result.rivals if row.size_bytes == size and row.time_us is not None
    ]
    extra: dict[str, Program] = {}
    if any(name.startswith("forest") for _, name in times) and EVEN not in {name for _, name in times}:
        extra[EVEN] = searched(result.question, EVEN, size).program
        took = simulate(extra[EVEN], result.question.topology, alpha=result.question.alpha).time_s
        times.append((took * 1e6, EVEN))
    passed_over: list[str] = []
    for _, name in sorted(times):
        try:
            program = extra.get(name) or _program(result, size, name)
            _file(program, to, (0, 0))
        except RingwrightError as error:
            passed_over.append(f"{name} at {format_size(size)} is faster, but {error.what}")
            continue
        return name, program, tuple(passed_over)
    raise ProgramError(
        f"{to} carries none of the programs that were found at {format_size(size)}",
        where=passed_over[-1],
        remedy="another format, or a method whose programs are shorter: --method sccl",
    )


def _program(result: Synthesised, size: int, name: str) -> Program:
    """Return what a method found, or the program of another algorithm."""
    if (size, name) in result.by_method:
        return result.by_method[size, name]
    _, make, knobs = registry.algorithm(name)
    return make(result.question.collective(size), result.question.topology, **knobs)


def _file(program: Program, to: str, window: tuple[int, int]) -> bytes:
    if to == "mscclpp-json":
        low, high = window
        return mscclpp_json(program, window=(low, high - 1 if high else LARGEST))
    return msccl_xml(program, window=window)


def _name(result: Synthesised, region: RegionFile, to: str) -> str:
    low = format_size(region.low).replace(" ", "")
    low = low if parse_size(low) == region.low else str(region.low)
    return f"{result.question.op}-{result.question.collective(0).p}-from-{low}{SUFFIX[to]}"


def _loads(folder: Path, names: list[str], files: list[RegionFile]) -> Iterator[MscclLoad]:
    for name, each in zip(names, files, strict=True):
        yield MscclLoad(str(folder.resolve() / FOLDER / name), each.low, each.high, protocol_of(each.data))


def protocol_of(xml: bytes) -> str:
    """Return the protocol that an MSCCL XML file names for its program."""
    said = re.search(rb'proto="([^"]*)"', xml)
    return said[1].decode() if said else "Simple"


def _hints(folder: Path, to: str, count: int) -> tuple[str, ...]:
    if to == "mscclpp-json":
        return (f"MSCCL++ picks by size: MSCCLPP_EXECUTION_PLAN_DIR={folder / FOLDER}",)
    few = f", the first {MOST_FILES} of {count}" if count > MOST_FILES else ""
    return (
        f"RCCL and Azure's scheduler pick by size: MSCCL_ALGO_DIR={folder / FOLDER}",
        f"Microsoft's runtime{few}: MSCCL_CONFIG={folder / CONFIG} NCCL_ALGO=MSCCL,RING,TREE",
    )
