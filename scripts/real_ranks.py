"""Run every algorithm on real ranks, on each executor that is there, and compare each result with the interpreter's.

scripts/real-ranks                          everything: all algorithms, collectives, group sizes, buffer sizes, executors
scripts/real-ranks --executor sockets       one executor (again for more); --only ring one algorithm
scripts/real-ranks --replay "openmpi ring all-reduce p=4 size=ragged fabric=switch root=0"   one case
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ringwright.contracts import real_ranks
from ringwright.contracts.algorithm import Case
from ringwright.execute.executors import EXECUTORS, executor

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "src" / "ringwright" / "contracts" / "real_ranks.json"
HEADINGS = ("executor", "cases", "exact", "wrong", "declined", "seconds")


def main() -> int:
    """Run; 1 where a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executor", action="append", choices=list(EXECUTORS), default=[])
    parser.add_argument("--only", default="", help="one algorithm")
    parser.add_argument("--p", type=int, action="append", default=[], help="one group size (again for more)")
    parser.add_argument("--replay", default="", help="one case, as a failure prints it")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds without progress")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if arguments.replay:
        name, text = arguments.replay.split(maxsplit=1)
        chosen, names = [Case.parsed(text)], [name]
    else:
        slugs = [arguments.only] if arguments.only else []
        chosen = real_ranks.chosen(arguments.p or real_ranks.GROUP_SIZES, slugs=slugs)
        names = arguments.executor or list(EXECUTORS)
    rows = list(tried(names, chosen, arguments.timeout))
    table([[str(row[heading]) for heading in HEADINGS] for row in rows])
    if arguments.record:
        record(rows)
    return 1 if any(row["wrong"] for row in rows) else 0


def tried(names: list[str], chosen: list[Case], timeout_s: float) -> Iterator[dict[str, str | int]]:
    """Yield a row for each executor that is there; say on standard error which is not."""
    for name in names:
        missing = executor(name).missing()
        if missing:
            print(f"{name}: left out. {missing}", file=sys.stderr)
            continue
        yield campaign(name, chosen, timeout_s)


def campaign(name: str, chosen: list[Case], timeout_s: float) -> dict[str, str | int]:
    """Return what came of all cases on one executor."""
    began_s = said_s = time.monotonic()
    exact = wrong = declined = 0
    for result in real_ranks.verify(executor(name), chosen, timeout_s=timeout_s):
        if result.wrong:
            wrong += 1
            print(f'scripts/real-ranks --replay "{name} {result.case}"   # {result.wrong}', flush=True)
        exact += not (result.wrong or result.declined)
        declined += bool(result.declined)
        if time.monotonic() - said_s > 5:
            said_s = time.monotonic()
            print(f"{name}: {exact + wrong + declined:,} of {len(chosen):,}", file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - began_s)
    found = (name, exact + wrong + declined, exact, wrong, declined, seconds)
    return dict(zip(HEADINGS, found, strict=True))


def table(rows: list[list[str]]) -> None:
    """Print rows below their headings."""
    for row in [list(HEADINGS), *rows]:
        print(f"{row[0]:14}" + "".join(f"{cell:>10}" for cell in row[1:]))


def record(rows: list[dict[str, str | int]]) -> None:
    """Put these executors' figures into the record; what it says of others stays."""
    kept = json.loads(RECORD.read_text())["executors"] if RECORD.exists() else {}
    date = dt.datetime.now(dt.UTC).date().isoformat()
    for row in rows:
        counts = {heading: row[heading] for heading in HEADINGS[1:5]}
        kept[str(row["executor"])] = {"date": date, **counts}
    RECORD.write_text(json.dumps({"executors": kept}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
