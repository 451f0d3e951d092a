"""Prints the accuracy tables; FOLDER holds nccl_times.csv with nccl_cases.csv.

Other tables of the folder are used where they are there: mpi_collectives_times.csv, and those of training steps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ringwright.accuracy import mpi_accuracy
from ringwright.accuracy.jobs import document, judge
from ringwright.jobs import step_tables
from ringwright.reports import layout
from ringwright.reports.calls import mpi_ranks
from ringwright_lab.judges import accuracy, accuracy_engines
from ringwright_lab.reports import step_accuracy
from ringwright_lab.reports.accuracy import write, write_engines

STEP_TABLES = ("training_iterations.csv", "megatron_iterations.csv")


def main(arguments: list[str]) -> int:
    folders = [Path(argument) for argument in arguments if not argument.startswith("-")]
    if len(folders) != 1:
        print("scripts/accuracy FOLDER [--json]", file=sys.stderr)
        return 2
    found = accuracy.study(folders[0] / "nccl_times.csv")
    mpi = folders[0] / "mpi_collectives_times.csv"
    ranked = [mpi_accuracy.study(mpi, engine) for engine in ("closed-form", "events")] if mpi.is_file() else []
    tables = [path for path in (folders[0] / name for name in STEP_TABLES) if path.is_file()]
    steps = document(*judge([row for path in tables for row in step_tables.read(path)]))
    if "--json" in arguments:
        json.dump({"nccl": found, "mpi": ranked, "steps": steps}, sys.stdout, indent=1)
        print()
        return 0
    write(found, sys.stdout)
    known, _ = accuracy.cases(folders[0] / "nccl_times.csv")
    write_engines("(a)", accuracy_engines.by_sizes(known), accuracy.TARGET_SIZES, sys.stdout)
    write_engines("(b)", accuracy_engines.by_nodes(known), accuracy.TARGET_NODES, sys.stdout)
    for each in ranked:
        mpi_ranks.write(layout.console(sys.stdout), each)
    step_accuracy.write(steps, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
