"""The folder that a benchmark leaves: ``bench.json`` with every round and its moment, and the Trace of one run of each program.

In a lab the folder also holds what the lab recorded (``lab.json``, ``timeline.jsonl``, ``counters.jsonl``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from ringwright.execute.plan import plans
from ringwright.execute.record import trace
from ringwright.ground import drafts
from ringwright.ground.errors import InputError
from ringwright_lab.bench.question import BenchSpec

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.trace import Trace
    from ringwright_lab.bench.jobs import BenchSample


class _Measured(TypedDict):
    """What has to stand in each of the ``runs``; seconds."""

    backend: str
    algorithm: str
    size_bytes: int
    start_s: list[float]
    time_s: list[float]


class _Document(TypedDict):
    """What has to stand in the file."""

    result: dict[str, Any]
    runs: list[_Measured]


SCHEMA = "ringwright.bench-capture/1"
FILE = "bench.json"
_MOST_BYTES = 1 << 28


def save(
    folder: Path,
    result: Mapping[str, Any],
    question: BenchSpec,
    samples: Sequence[BenchSample],
    made: Mapping[tuple[str, int], Program],
    began_s: float,
) -> None:
    """Write the capture. ``began_s``: when the fault script began, on the ranks' clock."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for sample in samples:
        starts = [start - began_s for start, _ in sample.rounds_s]
        runs.append(
            {
                "backend": sample.candidate,
                "algorithm": sample.algorithm,
                "size_bytes": sample.size_bytes,
                "beside": sample.beside,
                "wire": sample.wire,
                "inner": sample.inner,
                "start_s": starts,
                "time_s": sample.times_s,
            }
        )
        program = made.get((sample.algorithm, sample.size_bytes))
        if program is not None and sample.results[0].spans:
            recorded = trace(
                program,
                plans(program),
                sample.results[: program.n_nodes],
                executor=sample.candidate,
                hosts=question.lab is not None,
            )
            recorded.save(folder / name(sample.candidate, sample.algorithm, sample.size_bytes), force=True)
    document = {"schema": SCHEMA, "question": asdict(question), "result": dict(result), "runs": runs}
    drafts.write(folder / FILE, json.dumps(document) + "\n")


def name(backend: str, algorithm: str, size_bytes: int) -> str:
    """Return the folder's name of one recorded run."""
    return re.sub(r"[^\w.@=-]+", "_", f"trace-{backend}-{algorithm}-{size_bytes}")


def load(folder: Path) -> dict[str, Any]:
    """Return the document; InputError where the folder is no capture of a benchmark."""
    path = folder / FILE
    remedy = "ringwright bench all-reduce --lab switch:4,rate=100Mb/s -b 64K -e 4M -o DIR"
    if not path.is_file():
        raise InputError("this is no capture of a benchmark", where=f"{path} is missing", remedy=remedy)
    if path.stat().st_size > _MOST_BYTES:
        raise InputError("a capture is not that large", where=str(path), remedy=remedy)
    try:
        document = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"this is no JSON: {error}", where=str(path), remedy=remedy) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"the schema is not {SCHEMA}", where=str(path), remedy=remedy)
    try:
        question(document)
        msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise InputError(f"this capture is damaged: {error}", where=str(path), remedy=remedy) from error
    return document


def question(document: Mapping[str, Any]) -> BenchSpec:
    """Return the question that a capture answers."""
    return msgspec.convert(document.get("question"), BenchSpec)


def recorded(folder: Path, backend: str, algorithm: str, size_bytes: int) -> Trace | None:
    """Return the recorded run, None where none was kept."""
    from ringwright.model.trace import Trace

    path = folder / name(backend, algorithm, size_bytes)
    return Trace.open(path) if path.is_dir() else None
