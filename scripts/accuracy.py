"""Prints the accuracy tables; FOLDER holds nccl_times.csv with nccl_cases.csv (and mpi_collectives_times.csv)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ringwright.reports import accuracy as report
from ringwright.studies import accuracy, accuracy_engines, mpi_accuracy


def main(arguments: list[str]) -> int:
    folders = [Path(argument) for argument in arguments if not argument.startswith("-")]
    if len(folders) != 1:
        print("scripts/accuracy FOLDER [--json]", file=sys.stderr)
        return 2
    found = accuracy.study(folders[0] / "nccl_times.csv")
    mpi = folders[0] / "mpi_collectives_times.csv"
    ranked = [mpi_accuracy.study(mpi, engine) for engine in ("closed-form", "events")] if mpi.is_file() else []
    if "--json" in arguments:
        json.dump({"nccl": found, "mpi": ranked}, sys.stdout, indent=1)
        print()
        return 0
    report.write(found, sys.stdout)
    known, _ = accuracy.cases(folders[0] / "nccl_times.csv")
    report.write_engines("(a)", accuracy_engines.by_sizes(known), accuracy.TARGET_SIZES, sys.stdout)
    report.write_engines("(b)", accuracy_engines.by_nodes(known), accuracy.TARGET_NODES, sys.stdout)
    for each in ranked:
        report.write_mpi(each, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
