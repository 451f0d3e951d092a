"""Prints the accuracy tables; FOLDER holds nccl_times.csv with nccl_cases.csv.

Other tables of the folder are used where they are there: mpi_collectives_times.csv, and those of training steps.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ringwright.accuracy import mpi_accuracy
from ringwright.accuracy.jobs import document, judge
from ringwright.executors.fan_out import FanOut
from ringwright.jobs import step_tables
from ringwright.reports import layout
from ringwright.reports.calls import mpi_ranks
from ringwright_lab.judges import accuracy, accuracy_engines
from ringwright_lab.reports import step_accuracy
from ringwright_lab.reports.accuracy import write, write_engines
from ringwright_lab.testing import campaigns

STEP_TABLES = ("training_iterations.csv", "megatron_iterations.csv")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    campaigns.add_executor(parser)
    given = parser.parse_args()
    with campaigns.resumable(given.executor) as fan:
        return told(given.folder, fan, json_too=given.json)


def told(folder: Path, fan: FanOut, *, json_too: bool) -> int:
    """Judge the tables of a folder, and print them."""
    found = accuracy.study(folder / "nccl_times.csv", fan)
    mpi = folder / "mpi_collectives_times.csv"
    ranked = [mpi_accuracy.study(mpi, engine, fan) for engine in ("closed-form", "events")] if mpi.is_file() else []
    tables = [path for path in (folder / name for name in STEP_TABLES) if path.is_file()]
    steps = document(*judge([row for path in tables for row in step_tables.read(path)], executor=fan))
    if json_too:
        json.dump({"nccl": found, "mpi": ranked, "steps": steps}, sys.stdout, indent=1)
        print()
        return 0
    write(found, sys.stdout)
    known, _ = accuracy.cases(folder / "nccl_times.csv")
    by_sizes, by_nodes = (each(known, executor=fan) for each in (accuracy_engines.by_sizes, accuracy_engines.by_nodes))
    write_engines("(a)", by_sizes, accuracy.TARGET_SIZES, sys.stdout)
    write_engines("(b)", by_nodes, accuracy.TARGET_NODES, sys.stdout)
    for each in ranked:
        mpi_ranks.write(layout.console(sys.stdout), each)
    step_accuracy.write(steps, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
