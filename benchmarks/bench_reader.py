#!/usr/bin/env python3
"""Compare ``ringwright summary`` with grep and with the fixed baseline on one large generated log.

The three run as processes, in turn, several rounds, on the same file; medians are reported, each with its highest
resident memory. Usage: ``python benchmarks/bench_reader.py [--gib 1] [--rounds 3] [--file LOG] [--dirty 0.01]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEED = 2027


@dataclass
class Contestant:
    name: str
    command: list[str]
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    failure: str = ""


def environment() -> dict[str, str]:
    """Return the environment in which this checkout's package is found first."""
    return dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))


def run(contestant: Contestant, output: Path) -> None:
    """Run once and keep wall time and peak memory of that very process (children included by the kernel's count)."""
    with output.open("wb") as out, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(contestant.command, stdout=out, stderr=errors, env=environment())
        _, status, usage = os.wait4(process.pid, 0)
        elapsed_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if process.returncode:
            text = [line for line in errors.read().decode(errors="replace").splitlines() if line[:1].strip()]
            contestant.failure = text[-1] if text else f"exit {process.returncode}"
    contestant.seconds.append(elapsed_s)
    contestant.peak_bytes = max(contestant.peak_bytes, usage.ru_maxrss * 1024)


def make_file(arguments: argparse.Namespace) -> tuple[Path, dict[str, object]]:
    """Return the log and its truth, from an earlier run if the same one is there."""
    if arguments.file:
        return Path(arguments.file), {}
    folder = Path(tempfile.gettempdir()) / "ringwright-bench"
    folder.mkdir(exist_ok=True)
    path = folder / f"coll-{arguments.gib:g}gib-{arguments.ranks}-{arguments.dirty:g}-{SEED}.log"
    truth_path = path.with_suffix(".truth.json")
    if not (path.exists() and truth_path.exists()):
        began = time.perf_counter()
        # In a process of its own: a child's peak memory starts at its parent's, so this process stays small.
        size_bytes = round(arguments.gib * 2**30)
        call = f"write_coll_log({str(path)!r}, {size_bytes}, {arguments.ranks}, {SEED}, {arguments.dirty})"
        code = f"import json; from ringwright_lab.testing import write_coll_log; print(json.dumps({call}))"
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment())
        truth_path.write_bytes(done.stdout)
        print(f"wrote {path} in {time.perf_counter() - began:.1f} s")
    return path, json.loads(truth_path.read_text())


def contestants(path: Path) -> list[Contestant]:
    python = sys.executable
    field_of = [
        Contestant("grep -c opCount", ["grep", "-c", "opCount", str(path)]),
        Contestant("baseline (one regex)", [python, str(ROOT / "benchmarks" / "baseline_regex.py"), str(path)]),
    ]
    sys.path.insert(0, str(ROOT / "src"))
    if importlib.util.find_spec("ringwright.cli") is None:
        print("ringwright.cli is not there yet; measuring grep and the baseline alone")
        return field_of
    code = "import sys; from ringwright.cli import main; sys.argv[0] = 'ringwright'; sys.exit(main())"
    field_of.append(Contestant("ringwright summary", [python, "-c", code, "summary", str(path), "--json"]))
    field_of.append(Contestant("and a training line", [python, "-c", code, "summary", str(mixed(path)), "--json"]))
    return field_of


def mixed(path: Path) -> Path:
    """Return the same log behind one line of a training framework, which has another reader."""
    other = path.with_suffix(".mixed.log")
    if not other.exists() or other.stat().st_size <= path.stat().st_size:
        with other.open("wb") as out, path.open("rb") as lines:
            out.write(b" iteration 10/ 100 | elapsed time per iteration (ms): 5444.9 | global batch size: 8 |\n")
            shutil.copyfileobj(lines, out)
    return other


def agreement(summary_path: Path, truth: dict[str, object]) -> str:
    """Say whether the reader's operations are those of the truth, and which differ."""
    try:
        summary = json.loads(summary_path.read_text())
    except ValueError:
        return "its output is not JSON"
    rows = summary.get("operations", [])
    seen = {row["op"]: (row["count"], row["bytes"]) for row in rows}
    true = {row["op"]: (row["count"], row["bytes"]) for row in truth["operations"]}  # type: ignore[attr-defined]
    wrong = sorted(op for op in true.keys() | seen.keys() if true.get(op) != seen.get(op))
    records = sum(row.get("records", 0) for row in rows)
    share = f"{records:,} of {truth['coll_records']:,} recoverable records"
    if not wrong:
        return f"operations and bytes equal the truth; {share}"
    return "; ".join([*(f"{op}: read {seen.get(op)}, truth {true.get(op)}" for op in wrong), share])


def table(runs: list[Contestant], size_bytes: int) -> str:
    medians = {one.name: statistics.median(one.seconds) for one in runs}
    grep_s, baseline_s = medians[runs[0].name], medians[runs[1].name]
    lines = [f"{'reader':<22}{'median s':>10}{'MB/s':>9}{'x baseline':>12}{'grep takes':>12}{'peak MiB':>10}"]
    for one in runs:
        median_s = medians[one.name]
        lines.append(
            f"{one.name:<22}{median_s:>10.2f}{size_bytes / 1e6 / median_s:>9.1f}{baseline_s / median_s:>12.2f}"
            f"{grep_s / median_s:>11.2f}x{one.peak_bytes / 2**20:>10.0f}"
            + (f"  FAILED: {one.failure}" if one.failure else "")
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the generated log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--dirty", type=float, default=0.01)
    parser.add_argument("--file", help="measure on this log instead")
    arguments = parser.parse_args()
    path, truth = make_file(arguments)
    size_bytes = path.stat().st_size
    runs = contestants(path)
    outputs = {one.name: path.with_suffix(f".out{number}") for number, one in enumerate(runs)}
    for number in range(arguments.rounds):
        for one in runs:
            run(one, outputs[one.name])
            print(f"round {number + 1}: {one.name}: {one.seconds[-1]:.2f} s", flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    print(f"\n{path.name}: {size_bytes:,} B; {machine}")
    print(table(runs, size_bytes))
    if truth and len(runs) > 2 and not runs[2].failure:
        print("ringwright: " + agreement(outputs[runs[2].name], truth))


if __name__ == "__main__":
    main()
