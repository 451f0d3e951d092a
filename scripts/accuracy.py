"""Prints the accuracy tables; FOLDER holds nccl_times.csv with nccl_cases.csv (and mpi_collectives_times.csv)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ringwright.reports import accuracy as report
from ringwright.studies import accuracy


def main(arguments: list[str]) -> int:
    folders = [Path(argument) for argument in arguments if not argument.startswith("-")]
    if len(folders) != 1:
        print("scripts/accuracy FOLDER [--json]", file=sys.stderr)
        return 2
    found = accuracy.study(folders[0] / "nccl_times.csv")
    if "--json" in arguments:
        json.dump(found, sys.stdout, indent=1)
        print()
        return 0
    report.write(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
