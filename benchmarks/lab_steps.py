"""Whole training steps against real ranks on a lossy or flapping network: predictions first, written to a file; then both.

    python benchmarks/lab_steps.py predict lab_steps.json
    python benchmarks/lab_steps.py measure lab_steps.json measured.jsonl [--seeds 5] [--only 50Mb]
    python benchmarks/lab_steps.py judge lab_steps.json measured.jsonl

Layers sleep for their compute and gloo sends their gradients over TCP. A prediction is the step by ``studies/jobs``: it
knows the layers' times, the fabric, the fault and TCP.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ringwright_lab.judges import in_lab

QUESTIONS = (
    in_lab.LabStepsSpec(fabric="switch:4,rate=20Mb/s", elements=400_000, steps=10, timeout_s=200.0),
    in_lab.LabStepsSpec(fabric="switch:4,rate=50Mb/s", elements=1_000_000, steps=10, timeout_s=200.0),
)
CASES = ("control", "loss 1% of rank 3", "flapping port of rank 3", "rate 50%")
POLICY = in_lab.POLICIES[0]


def predict(path: Path) -> None:
    """Write what is predicted, s a step."""
    rows = []
    for question in QUESTIONS:
        for model in question.models:
            for case in CASES:
                lines, slowdowns = in_lab.CASES[case]
                step_s = in_lab.predict(model, question, lines, slowdowns, POLICY)
                rows.append({"fabric": question.fabric, "model": model, "case": case, "step_s": step_s})
    path.write_text(json.dumps(rows, indent=1) + "\n")


def measure(out: Path, seeds: int, only: str) -> None:
    """Append a line for each run on a fabric with ``only`` in its name."""
    for seed in range(1, seeds + 1):
        for question in (each for each in QUESTIONS if only in each.fabric):
            for row in in_lab.rows(replace(question, cases=CASES, policies=(POLICY,), seed=seed)):
                told = {"fabric": question.fabric, "model": row.model, "case": row.case, "seed": seed}
                with out.open("a") as file:
                    file.write(json.dumps(told | {"times_s": row.times_s}) + "\n")
                print(*told.values(), *(f"{each:.3f}" for each in row.times_s), flush=True)


def judge(path: Path, out: Path) -> None:
    """Print predictions beside means of all measured steps: the time, and what the disturbance adds to the control."""
    measured: dict[tuple[str, str, str], list[float]] = {}
    for row in (json.loads(line) for line in out.read_text().splitlines()):
        measured.setdefault((row["fabric"], row["model"], row["case"]), []).extend(row["times_s"])
    told: dict[tuple[str, str, str], Any] = {
        (row["fabric"], row["model"], row["case"]): row["step_s"] for row in json.loads(path.read_text())
    }
    print(
        f"{'fabric, model, case':64} {'steps':>5} {'measured':>9} {'predicted':>9} {'off':>6} {'added':>8} {'predicted':>9}"
    )
    for key, times in measured.items():
        base = (*key[:2], CASES[0])
        added = (fmean(times) - fmean(measured[base])) * 1e3, (told[key] - told[base]) * 1e3
        print(
            f"{', '.join(key):64} {len(times):5} {fmean(times) * 1e3:9.1f} {told[key] * 1e3:9.1f}"
            f" {told[key] / fmean(times) - 1:+6.1%} {added[0]:8.0f} {added[1]:9.0f}"
        )


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "measure", "judge"))
    parser.add_argument("predictions", type=Path)
    parser.add_argument("measured", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="fabrics with these words in their name")
    given = parser.parse_args()
    if given.what == "predict":
        predict(given.predictions)
    elif given.measured is None:
        parser.error("where are the measured times?")
    elif given.what == "measure":
        measure(given.measured, given.seeds, given.only)
    else:
        judge(given.predictions, given.measured)


if __name__ == "__main__":
    main()
