"""Whole steps predicted against measured in the lab: a row per model, fault and policy. See scripts/lab-steps."""

from __future__ import annotations

import argparse
import sys

from ringwright_lab.judges.in_lab import CASES, POLICIES, LabStepsSpec, rows


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fabric", default=LabStepsSpec.fabric)
    parser.add_argument("--models", default="vgg,transformer")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--elements", type=int, default=LabStepsSpec.elements)
    given = parser.parse_args()
    question = LabStepsSpec(
        given.fabric,
        given.models.split(","),
        given.cases.split(","),
        given.policies.split(","),
        elements=given.elements,
    )
    print(f"{'model':12} {'fault':20} {'policy':14} {'predicted s':>12} {'measured s':>11} {'error':>7}")
    worst = 0.0
    for row in rows(question):
        worst, policy = max(worst, abs(row.error)), row.policy.partition(":")[0]
        times = f"{row.predicted_s:12.3f} {row.measured_s:11.3f} {row.error:+7.1%}"
        print(f"{row.model:12} {row.case:20} {policy:14} {times}", flush=True)
    print(f"largest error {worst:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
