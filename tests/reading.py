"""What tests of the reader share: write a generated log to files, read them, compare with its truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright_lab.testing import GeneratedLog, NcclJob, training_job

FACTS = ("nccl_versions", "hosts", "ranks_seen", "ranks_expected", "communicators")
Operations = dict[str, tuple[int, int, int, dict[int, int]]]


def put(log: GeneratedLog, folder: Path) -> Path:
    """Write the log's files into a new folder and return it."""
    folder.mkdir(parents=True)
    for name, data in (log.files or {"job.log": log.text}).items():
        (folder / name).write_bytes(data)
    return folder


def summary_of(path: Path | list[Path], events: str = "auto") -> dict[str, Any]:
    return summarise(read(path, events=events))


def operations(summary: dict[str, Any]) -> Operations:
    """Return op -> (count, records, bytes, histogram)."""
    return {
        row["op"]: (
            row["count"],
            row["records"],
            row["bytes"],
            {line["size_bytes"]: line["count"] for line in row["size_histogram"]},
        )
        for row in summary["operations"]
    }


def members(summary: dict[str, Any]) -> list[tuple[int, ...]]:
    return sorted(tuple(row["members"]) for row in summary["communicator_list"])


def small_job(release: str = "2.27", *, seed: int = 5) -> NcclJob:
    """Return eight ranks on two hosts with tensor, pipeline and expert parallelism where the release can do them."""
    modern = release != "2.3"
    return training_job(
        2, 4, tp=2, pp=2 if modern else 1, ep=2 if modern else None, iterations=2, layers=1, tokens=64, seed=seed
    )
