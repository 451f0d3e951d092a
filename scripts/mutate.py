"""Mutation testing of one room by a seeded sample; see scripts/mutate.

A place is drawn first (a file, a line, a column), then one of the changes that cosmic-ray knows for it, so that lines with many
operators do not crowd out the others. Annotations are no places: they do not run. The tests that reach the line are run quickest
first until one fails; a change that no test notices survives. Results are lines of JSON under build/mutation.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "ringwright"
STORE = ROOT / "build" / "mutation"
COVERAGE = STORE / "coverage"
SECONDS = STORE / "seconds.jsonl"
KILLED = ("killed", "incompetent")
# by the name that a result is kept under, the folders
ROOMS = {
    "validity": ("model/validity",),
    "analysis": ("analysis",),
    "costs": ("bounds", "costs"),
    "engines": ("engines",),
}
FAST = "not slow and not browser and not lab and not mpi and not torch"
FIRST = 40  # tests that are tried before the others
MOST_SECONDS = 60.0  # of tests that are run for one change


@dataclass(frozen=True)
class Place:
    """A place of a file and one change of it, by cosmic-ray's name and count."""

    file: str
    line: int
    column: int
    operator: str
    occurrence: int


def main(arguments: list[str]) -> int:
    """Run one of the three forms."""
    if arguments[:1] == ["map"]:
        return make_map(arguments[1:])
    if arguments[:1] == ["show"]:
        return show()
    parser = argparse.ArgumentParser(prog="scripts/mutate")
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="1/1", help="of the sample, so that several checkouts share it: 1/2")
    parser.add_argument("--label", default="", help="a name for the results, such as before")
    parser.add_argument("--again", default="", metavar="LABEL", help="only what survived under that label")
    options = parser.parse_args(arguments)
    if _git("status", "--porcelain", "--", "src"):
        print("scripts/mutate: src/ has uncommitted changes; commit them first", file=sys.stderr)
        return 2
    part, parts = (int(number) for number in options.part.split("/"))
    earlier = STORE / f"{options.room}-{options.seed}-{options.again}.jsonl"
    drawn = survivors(earlier) if options.again else sample(options.room, options.sample, options.seed)
    target = STORE / f"{options.room}-{options.seed}{'-' + options.label if options.label else ''}.jsonl"
    run([place for number, place in enumerate(drawn) if number % parts == part - 1], target)
    return show(target)


# ------------------------------------------------------------------------------------------------------------ the places
def sample(room: str, number: int, seed: int) -> list[Place]:
    """Return ``number`` places of a room, the same for the same seed and the same code."""
    by_spot: dict[tuple[str, int, int], list[Place]] = defaultdict(list)
    for path in (each for folder in ROOMS[room] for each in sorted((PACKAGE / folder).rglob("*.py"))):
        for place in _places(path):
            by_spot[place.file, place.line, place.column].append(place)
    drawing = random.Random(f"{room} {seed}")  # noqa: S311
    spots = drawing.sample(sorted(by_spot), min(number, len(by_spot)))
    return [drawing.choice(by_spot[spot]) for spot in spots]


def survivors(results: Path) -> list[Place]:
    """Return the places of a file of results that no test noticed."""
    return [Place(**row["place"]) for row in _rows(results) if row["outcome"] not in KILLED]


def _places(path: Path) -> list[Place]:
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    source = path.read_text()
    idle = _idle(source)
    nodes = list(ast_nodes(get_ast(source)))
    found = []
    for name in plugins.operator_names():
        kind = plugins.get_operator(name)
        if kind.arguments() or name.endswith(
            ("_Is", "_IsNot")
        ):  # == and is differ for few values: nothing a test could see
            continue
        operator = kind()
        spots = (spot for node in nodes for spot in operator.mutation_positions(node))
        for occurrence, (start, _) in enumerate(spots):
            if not any(first <= start <= last for first, last in idle):
                found.append(Place(str(path.relative_to(ROOT)), start[0], start[1], name, occurrence))
    return found


def _idle(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the spans that never run: annotations, and what stands there for type checkers alone."""
    nodes: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign):
            nodes.append(node.annotation)
        if isinstance(node, ast.arg) and node.annotation:
            nodes.append(node.annotation)
        if isinstance(node, ast.FunctionDef) and node.returns:
            nodes.append(node.returns)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            nodes.append(node)
    spans: list[Any] = [node for node in nodes if hasattr(node, "end_lineno")]
    return [((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)) for node in spans]


# --------------------------------------------------------------------------------------------------------------- the map
def make_map(extra: list[str]) -> int:
    """Run the quick tests under coverage; keep which test reaches which line and how long each takes."""
    STORE.mkdir(parents=True, exist_ok=True)
    if not extra:  # of some tests alone, the map is extended
        COVERAGE.unlink(missing_ok=True)
        SECONDS.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        "--append",
        f"--data-file={COVERAGE}",
        f"--source={PACKAGE}",
        "-m",
        "pytest",
    ]
    command += ["-q", "-n", "0", "-p", "mutate_map", "-p", "no:cacheprovider", "-m", FAST, *extra]
    paths = os.pathsep.join([str(ROOT / "scripts" / "mutation"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, check=False).returncode


def reaching() -> dict[str, dict[int, set[str]]]:
    """Return file -> line -> tests; the tests of a line that runs at import alone are all of its file's."""
    from coverage import CoverageData

    data = CoverageData(str(COVERAGE))
    data.read()
    found: dict[str, dict[int, set[str]]] = {}
    for file in data.measured_files():
        lines = {line: set(names) - {""} for line, names in data.contexts_by_lineno(file).items()}
        everyone = set().union(*lines.values()) if lines else set()
        found[str(Path(file).relative_to(ROOT))] = {line: names or everyone for line, names in lines.items()}
    return found


def seconds() -> dict[str, float]:
    """Return how long each test function took when the map was made."""
    rows = (json.loads(line) for line in SECONDS.read_text().splitlines())
    return {row["test"]: row["seconds"] for row in rows}


# -------------------------------------------------------------------------------------------------------------- the runs
def run(places: list[Place], target: Path) -> None:
    """Try each place and add its result to a file; places that stand in it already are left out."""
    reach, cost = reaching(), seconds()
    done = {tuple(row["place"].values()) for row in _rows(target)}
    for place in places:
        if tuple(asdict(place).values()) in done:
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        tests = _tests_of(place, reach, cost)
        outcome, change = (
            _try(place, tests, sum(cost.get(test, 1.0) for test in tests)) if tests else ("not reached", "")
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        row = {
            "place": asdict(place),
            "outcome": outcome,
            "tests": len(tests),
            "cpu_s": round(spent, 1),
            "change": change,
        }
        with target.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(f"{outcome:12} {place.file}:{place.line} {place.operator}", file=sys.stderr)


def _tests_of(place: Place, reach: dict[str, dict[int, set[str]]], cost: dict[str, float]) -> list[str]:
    """Return the tests that reach a line (or the nearest line before it: a statement may go over several), quickest first."""
    lines = reach.get(place.file, {})
    near = max((line for line in lines if line <= place.line), default=None)
    tests, total = [], 0.0
    for test in sorted(lines[near] if near is not None else (), key=lambda name: (cost.get(name, 1.0), name)):
        total += cost.get(test, 1.0)
        if total > MOST_SECONDS and tests:
            break
        tests.append(test)
    return tests


def _try(place: Place, tests: list[str], expected_s: float) -> tuple[str, str]:
    """Return killed, survived or no change, and the change as a diff."""
    import shlex

    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.work_item import MutationSpec

    start, end = (place.line, place.column), (place.line, place.column + 1)  # only told, not used
    spec = MutationSpec(
        module_path=ROOT / place.file,
        operator_name=place.operator,
        occurrence=place.occurrence,
        start_pos=start,
        end_pos=end,
    )
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--no-header"]
    limit_s = (
        60 + 6 * expected_s
    )  # of each command, which ends with all that it has started: a change may loop for ever
    commands = []
    for number, part in enumerate(
        (tests[:FIRST], tests[FIRST:])
    ):  # the first few end most changes, and are quick to collect
        if part:
            listed = STORE / f"tests-{os.getpid()}-{number}"
            listed.write_text("\n".join(part))
            commands.append(
                shlex.join(
                    [
                        "timeout",
                        "--kill-after=5",
                        str(int(limit_s)),
                        sys.executable,
                        "-m",
                        "pytest",
                        *options,
                        f"@{listed}",
                    ]
                )
            )
    result = mutate_and_test([spec], shlex.join(["sh", "-c", " && ".join(commands)]), 2 * limit_s + 60)
    outcome = result.test_outcome.name.lower() if result.test_outcome else "no change"
    return outcome, result.diff or ""


def show(target: Path | None = None) -> int:
    """Print the share killed of each file of results, and every survivor."""
    for path in [target] if target else sorted(STORE.glob("*-*.jsonl")):
        rows = _rows(path)
        killed = sum(row["outcome"] in KILLED for row in rows)
        hours = sum(row["cpu_s"] for row in rows) / 3600
        print(f"{path.stem}: {killed} of {len(rows)} killed ({killed / max(len(rows), 1):.0%}), {hours:.2f} CPU hours")
        for row in rows:
            if row["outcome"] not in KILLED:
                changed = [
                    line for line in row["change"].splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
                ]
                print(f"  {row['outcome']} {row['place']['file']}:{row['place']['line']} ({row['tests']} tests)")
                print("\n".join(f"      {line}" for line in changed[:4]))
    return 0


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    started = time.monotonic()
    status = main(sys.argv[1:])
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    sys.exit(status)
