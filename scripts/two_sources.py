"""Records jobs of others by two sources at once, and compares them cell by cell: calls, operations, sizes, groups, roles.

Of each call each cell is equal, or only one source has it: then the raw recording of the other must not say it either. Anything
else is a difference, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

import ringwright

SCRIPTS = Path(__file__).parent
STARTER = SCRIPTS.parent / "tests" / "started_ranks.py"
LIBRARIES = {"accelerate": "accelerate", "trainer": "transformers", "lightning": "lightning", "deepspeed": "deepspeed"}
RANKS = {"fsdp2-tensor": 4}
JOBS = "ddp fsdp2 fsdp2-tensor tensor-parallel pipeline-1f1b pipeline-interleaved".split()
CELLS = ("size_bytes", "datatype", "peer", "root", "nranks")
# what the events of a call would hold if the profiler wrote down a cell: keys of arguments, or words of the document
RAW = {
    "nranks": ("Group size", "Process Group Name", "Process Group Ranks"),
    "size_bytes": ("In msg nelems", "Out msg nelems"),
    "datatype": ("dtype",),
}
LONGEST_S = 300

Call = dict[str, Any]


def recorded(job: str, folder: Path) -> tuple[Path, Path]:
    """Run a job under the recorder with the profiler on; return what each left."""
    recording, profile = folder / "recording", folder / "profile"
    profile.mkdir(parents=True)
    ranks = [
        sys.executable,
        str(STARTER),
        str(RANKS.get(job, 2)),
        str(SCRIPTS / "two_source_jobs.py"),
        job,
        str(profile),
    ]
    command = [sys.executable, "-m", "ringwright", "run", "-o", str(recording), "--", *ranks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if done.returncode:
        raise SystemExit(f"{job}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return recording, profile


def calls(source: Path) -> dict[tuple[int, str], list[Call]]:
    """Return the calls of each rank and operation in order."""
    frame = ringwright.read(source).df.filter(pl.col("kind").is_in(["collective", "p2p"])).sort("enqueue_s", "line")
    told: dict[tuple[int, str], list[Call]] = defaultdict(list)
    for row in frame.select("rank", "op", "file", "line", *CELLS).to_dicts():
        told[row["rank"], row["op"]].append(row)
    return told


def silent(cell: str, call: Call, documents: dict[str, Any]) -> bool:
    """Whether the profile does not say a cell of a call: neither its event nor the document holds what would tell."""
    document = documents[call["file"]]
    event = document["traceEvents"][call["line"]]
    said = event.get("args", {})
    if any(key in said for key in RAW.get(cell, ())):
        return False
    if cell == "nranks":  # the list of groups is that of the profile's begin
        return len(document.get("distributedInfo", {}).get("pg_config", [])) <= 1
    return not said.get("Input Dims")  # a label without tensors: nothing tells how much, or of which type


def has_phases(document: dict[str, Any]) -> bool:
    """Whether a profile says what was forward and what backward, as ``record_function("## forward ##")`` does."""
    return any(str(event.get("name", "")).startswith("## ") for event in document["traceEvents"])


def compared(job: str, folder: Path) -> dict[str, Any]:
    """Return counts of equal cells, of those that one source alone has, and every difference."""
    recording, profile = recorded(job, folder)
    mine, theirs = calls(recording), calls(profile)
    documents = {str(path): json.loads(path.read_text()) for path in profile.glob("*.json")}
    equal: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    differences = []
    for key in sorted({*mine, *theirs}):
        ours, others = mine.get(key, []), theirs.get(key, [])
        if len(ours) != len(others):
            differences.append(f"rank {key[0]}: {len(ours)} {key[1]} in the recording, {len(others)} in the profile")
            continue
        equal["calls"] += len(ours)
        for number, (one, other) in enumerate(zip(ours, others, strict=True)):
            for cell in CELLS:
                where = f"rank {key[0]}, {key[1]} {number}: {cell}"
                if one[cell] == other[cell]:
                    equal[cell] += 1
                elif other[cell] is None and silent(cell, other, documents):
                    alone[f"{cell}: the profile does not say it"] += 1
                else:
                    differences.append(f"{where} {one[cell]} in the recording, {other[cell]} in the profile")
    roles = [ringwright.summary(ringwright.read(source))["roles"] for source in (recording, profile)]
    for name, degree in roles[0].items():
        if degree == roles[1][name]:
            equal["roles"] += 1
        elif roles[1][name] is None and not any(has_phases(document) for document in documents.values()):
            alone["roles: the profile has no phases"] += 1
        else:
            differences.append(f"role {name}: {degree} in the recording, {roles[1][name]} in the profile")
    operations = Counter({op: 0 for _, op in mine})
    for (_, op), rows in mine.items():
        operations[op] += len(rows)
    return {
        "job": job,
        "ranks": RANKS.get(job, 2),
        "roles": roles[0],
        "operations": dict(sorted(operations.items())),
        "equal": dict(equal),
        "alone": dict(sorted(alone.items())),
        "differences": differences[:20],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", default=[*JOBS, *LIBRARIES])
    parser.add_argument("--record", type=Path, help="write the result here")
    given = parser.parse_args()
    told = []
    for job in given.jobs:
        if job in LIBRARIES and find_spec(LIBRARIES[job]) is None:
            print(f"{job}: left out, {LIBRARIES[job]} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = compared(job, Path(folder))
        told.append(row)
        print(job, *(f"{name} {count}" for name, count in row["equal"].items()), sep="  ")
        print(
            *(f"  {count} of {name}" for name, count in row["alone"].items()), sep="\n", end="\n" * bool(row["alone"])
        )
        print(*(f"  DIFFERENT {each}" for each in row["differences"]), sep="\n", end="\n" * bool(row["differences"]))
    if given.record:
        document = {"schema": "ringwright.two-sources/1", "torch": __import__("torch").__version__, "jobs": told}
        given.record.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row["differences"] for row in told))


if __name__ == "__main__":
    sys.exit(main())
