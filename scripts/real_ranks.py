"""Run every algorithm on real ranks, on each executor that is there, and compare each result with the interpreter's.

scripts/real-ranks                          everything: all algorithms, collectives, group sizes, buffer sizes, executors
scripts/real-ranks --executor sockets       one executor (again for more); --only ring one algorithm (again for more)
scripts/real-ranks --schedulers             every scheduler live: small models trained by its policy, two ranks
scripts/real-ranks --graphs                 every scheduler that rewrites graphs: carried out on four gloo ranks, before and after
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
from typing import Any

from ringwright.execute.executors import EXECUTORS, executor
from ringwright.model import registry
from ringwright_lab.contracts import graph_schedulers, live_schedulers, real_ranks
from ringwright_lab.contracts.algorithm import AlgorithmCase

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "lab" / "src" / "ringwright_lab" / "contracts" / "real_ranks.json"
HEADINGS = ("executor", "cases", "exact", "wrong", "declined", "seconds")


def main() -> int:
    """Run; 1 where a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executor", action="append", choices=list(EXECUTORS), default=[])
    parser.add_argument("--only", action="append", default=[], help="one algorithm or scheduler (again for more)")
    parser.add_argument("--schedulers", action="store_true", help="schedulers on real ranks, not algorithms")
    parser.add_argument("--graphs", action="store_true", help="graphs as schedulers rewrite them, on real ranks")
    parser.add_argument("--p", type=int, action="append", default=[], help="one group size (again for more)")
    parser.add_argument("--replay", default="", help="one case, as a failure prints it")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds without progress")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if arguments.schedulers:
        return live(arguments.only, write=arguments.record)
    if arguments.graphs:
        return graphs(arguments.only, write=arguments.record)
    if arguments.replay:
        name, text = arguments.replay.split(maxsplit=1)
        chosen, names = [AlgorithmCase.parsed(text)], [name]
    else:
        chosen = real_ranks.chosen(arguments.p or real_ranks.GROUP_SIZES, slugs=arguments.only)
        names = arguments.executor or list(EXECUTORS)
    rows = list(tried(names, chosen, arguments.timeout))
    table([[str(row[heading]) for heading in HEADINGS] for row in rows])
    if arguments.record:
        record(rows, whole=not (arguments.only or arguments.p or arguments.replay))
    return 1 if any(row["wrong"] for row in rows) else 0


def tried(names: list[str], chosen: list[AlgorithmCase], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Yield a row for each executor that is there; say on standard error which is not."""
    for name in names:
        missing = executor(name).missing()
        if missing:
            print(f"{name}: left out. {missing}", file=sys.stderr)
            continue
        yield campaign(name, chosen, timeout_s)


def campaign(name: str, chosen: list[AlgorithmCase], timeout_s: float) -> dict[str, Any]:
    """Return what came of all cases on one executor, also system by system."""
    began_s = said_s = time.monotonic()
    exact = wrong = declined = 0
    systems: dict[str, dict[str, int]] = {}
    for result in real_ranks.verify(executor(name), chosen, timeout_s=timeout_s):
        if result.wrong:
            wrong += 1
            print(f'scripts/real-ranks --replay "{name} {result.case}"   # {result.wrong}', flush=True)
        exact += not (result.wrong or result.declined)
        declined += bool(result.declined)
        mine = systems.setdefault(result.case.slug, {"exact": 0, "wrong": 0, "declined": 0})
        mine["wrong" if result.wrong else "declined" if result.declined else "exact"] += 1
        if time.monotonic() - said_s > 5:
            said_s = time.monotonic()
            print(f"{name}: {exact + wrong + declined:,} of {len(chosen):,}", file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - began_s)
    found = (name, exact + wrong + declined, exact, wrong, declined, seconds)
    return {**dict(zip(HEADINGS, found, strict=True)), "systems": systems}


def live(slugs: list[str], *, write: bool) -> int:
    """Train small models by every scheduler, or by some; 1 where a result was wrong."""
    chosen = [system for system in registry.schedulers() if not slugs or system.slug in slugs]
    plain = {model: live_schedulers.reference(model) for model in live_schedulers.MODELS}
    found: dict[str, dict[str, int]] = {}
    for system in chosen:
        results = [live_schedulers.tried(system, model, plain[model]) for model in live_schedulers.MODELS]
        found[system.slug] = live_schedulers.counted(results)
        why = "; ".join(f"{each.model}: {each.why}" for each in results if each.why)
        print(
            f"{system.slug:20}" + "".join(f"{name} {count}  " for name, count in found[system.slug].items()) + why,
            flush=True,
        )
    if write:
        keep("torch-live", found)
    return 1 if any(counts["wrong"] for counts in found.values()) else 0


def graphs(slugs: list[str], *, write: bool) -> int:
    """Carry out the graphs of small models as schedulers rewrite them, every one or some; 1 where a result was wrong."""
    chosen = [each for each in registry.schedulers() if each.module.split(".")[2] == "decompose"]
    found: dict[str, dict[str, int]] = {}
    for system in chosen if not slugs else [each for each in chosen if each.slug in slugs]:
        results = [graph_schedulers.tried(system, form) for form in graph_schedulers.forms(system.slug)]
        counts = {name: sum(each.outcome == name for each in results) for name in ("exact", "wrong", "declined")}
        counts["rewritten"] = sum(each.is_rewritten and each.outcome == "exact" for each in results)
        found[system.slug] = counts
        why = "; ".join(f"{each.form}: {each.why or f'{each.rules} rules, {each.pieces} pieces'}" for each in results)
        print(f"{system.slug:28}" + "".join(f"{name} {count}  " for name, count in counts.items()) + why, flush=True)
    if write:
        keep(graph_schedulers.EXECUTOR, found)
    return 1 if any(counts["wrong"] for counts in found.values()) else 0


def keep(executor_name: str, found: dict[str, dict[str, int]]) -> None:
    """Write what came of schedulers on an executor to the record, beside what is there of others."""
    kept = json.loads(RECORD.read_text())
    for slug, counts in found.items():
        kept.setdefault("schedulers", {}).setdefault(slug, {})[executor_name] = {"date": today(), **counts}
    RECORD.write_text(json.dumps(kept, indent=1) + "\n")


def table(rows: list[list[str]]) -> None:
    """Print rows below their headings."""
    for row in [list(HEADINGS), *rows]:
        print(f"{row[0]:14}" + "".join(f"{cell:>10}" for cell in row[1:]))


def record(rows: list[dict[str, Any]], *, whole: bool) -> None:
    """Put these figures into the record; what it says of others stays. A part of the campaign counts for its systems alone."""
    kept = json.loads(RECORD.read_text()) if RECORD.exists() else {"executors": {}}
    for row in rows:
        if whole:
            counts = {heading: row[heading] for heading in HEADINGS[1:5]}
            kept["executors"][str(row["executor"])] = {"date": today(), **counts}
        for slug, counts in row["systems"].items():
            kept.setdefault("systems", {}).setdefault(slug, {})[str(row["executor"])] = {"date": today(), **counts}
    RECORD.write_text(json.dumps(kept, indent=1) + "\n")


def today() -> str:
    """Return the date as a record has it."""
    return dt.datetime.now(dt.UTC).date().isoformat()


if __name__ == "__main__":
    sys.exit(main())
