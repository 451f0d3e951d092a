"""Gains of ordered gradients over plain buckets on real ranks, against the simulated ones. See scripts/live-gains."""

from __future__ import annotations

import argparse
import sys

from ringwright_lab.judges.gains import POLICIES, GainsSpec, cases

WORTH = 1.1  # predicted gains below it are noise


def main() -> int:
    """Print the table; the exit code says whether parameters were the same to the bit under every policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="vgg,transformer")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--step-s", type=float, default=GainsSpec.step_s)
    parser.add_argument("--rounds", type=int, default=GainsSpec.rounds)
    given = parser.parse_args()
    question = GainsSpec(
        given.models.split(","),
        [int(each) for each in given.ranks.split(",")],
        given.policies.split(","),
        given.step_s,
        rounds=given.rounds,
    )
    print(
        f"{'model':12} {'ranks':>5} {'policy':16} {'step s':>7} {'predicted':>9} {'gain':>6} {'predicted':>9} {'share':>6}"
    )
    same = True
    for model, ranks, rows in cases(question):
        same &= len({row.parameters_hash for row in rows}) == 1
        for row in rows:
            share = f"{row.share:6.2f}" if row.predicted_gain >= WORTH else ""
            name = row.name.partition(":")[0]
            times = f"{row.step_s:7.3f} {row.predicted_s:9.3f} {row.gain:6.3f} {row.predicted_gain:9.3f} {share}"
            print(f"{model:12} {ranks:5} {name:16} {times}", flush=True)
    print("parameters: " + ("the same to the bit under every policy" if same else "DIFFERENT between policies"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
