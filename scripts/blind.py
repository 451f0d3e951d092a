"""Prints the blind accuracy of the diagnosis; real faults need PyTorch in the environment."""

from __future__ import annotations

import argparse
import json
import sys

from ringwright.testing import blind


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--healthy", type=int, default=200)
    parser.add_argument("--real", type=int, default=60, help="of the faults, put into real gloo ranks")
    parser.add_argument("--real-healthy", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    def done(answer: blind.Answer) -> None:
        if answer.outcome in ("wrong", "false-alarm", "silent"):
            print(
                f"{answer.outcome}: {answer.case}: put in {answer.truth}, said {answer.kind} {answer.said}",
                file=sys.stderr,
            )

    cases = blind.plan(given.faults, given.healthy, given.real, given.real_healthy)
    found = blind.document(blind.judge(cases, done))
    if given.json:
        json.dump(found, sys.stdout, indent=1)
        print()
    else:
        blind.write(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
