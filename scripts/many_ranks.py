"""A job of many ranks, read, then summarised as a user would: wall and processor time, who has it, the peak of memory.

    .venv/bin/python scripts/many_ranks.py 100 1000 10240 --steps 370 --folder DIR --record benchmarks/many-ranks.json

A hundredth of the files are damaged or missing, and one rank is late in every step. Not part of CI.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from ringwright_lab.testing.many_ranks import ManyRanks

PAGE = os.sysconf("SC_PAGE_SIZE")
COMMAND = [str(Path(sys.executable).parent / "ringwright"), "summary", "--json"]
READ = """
import json, sys, time
import ringwright
from ringwright.executors.fan_out import fan_out
began_s, began_cpu_s = time.monotonic(), time.process_time()
with fan_out(sys.argv[2]) as fan:
    ringwright.read(sys.argv[1], executor=fan)
    asking_cpu_s = time.process_time() - began_cpu_s
print(json.dumps({"wall_s": time.monotonic() - began_s, "asking_cpu_s": asking_cpu_s, **fan.account.document()}))
"""


def main() -> int:
    """Measure each number of ranks; return 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ranks", nargs="+", type=int)
    parser.add_argument("--steps", type=int, default=330)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--executor", default="local")
    parser.add_argument("--record", type=Path)
    asked = parser.parse_args()
    rows = []
    for world in asked.ranks:
        with tempfile.TemporaryDirectory(dir=asked.folder) as held:
            rows.append(measured(world, asked.steps, asked.executor, Path(held) / "job"))
        print(json.dumps(rows[-1]), flush=True)
    if asked.record:
        about = {"command": " ".join(["scripts/many_ranks.py", *sys.argv[1:]]), "cores": os.cpu_count(), "rows": rows}
        asked.record.write_text(json.dumps(about, indent=1) + "\n")
    return 0


def measured(world: int, steps: int, executor: str, folder: Path) -> dict[str, Any]:
    """Write a job, have it summarised in a process of its own, and return what that took and what it said."""
    late, odd = world * 2 // 5, max(1, world // 200)
    job = ManyRanks(world, steps, late_rank=late, damaged=odd, missing=odd)
    files = job.write(folder)
    size_bytes = sum(each.stat().st_size for each in files)
    read = json.loads(subprocess.check_output([sys.executable, "-c", READ, str(folder), executor]))
    share = read["asking_cpu_s"] / (read["asking_cpu_s"] + read["cpu_s"])
    with tempfile.TemporaryFile() as out:
        began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        asked = subprocess.Popen([*COMMAND, str(folder), "--executor", executor], stdout=out)
        peak = Peak(asked.pid)
        code = asked.wait()
        wall_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        peak.end()
        out.seek(0)
        answer = json.load(out) if code == 0 else {}
    shutil.rmtree(folder)
    calls = sum(row["records"] for row in answer.get("operations", []))
    worked = answer.get("executor", {})
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "ranks": world,
        "files": len(files),
        "size_gb": round(size_bytes / 1e9, 2),
        "code": code,
        "calls": calls,
        "read_wall_s": round(read["wall_s"], 1),
        "read_workers_cpu_s": round(read["cpu_s"], 1),
        "read_asking_cpu_s": round(read["asking_cpu_s"], 1),
        "read_asking_share": round(share, 4),
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1),
        "workers_cpu_s": worked.get("cpu_s"),
        "peak_of_one_mb": peak.one >> 20,
        "peak_of_all_mb": peak.all >> 20,
        "ranks_seen": answer.get("ranks_seen"),
        "late": late,
        "blamed": [[each["kind"], each["ranks"][:4]] for each in answer.get("culprits", [])[:3]],
        "executor": worked,
    }


class Peak:
    """The most memory that a process and its children hold: of one of them, and of all together (B)."""

    def __init__(self, pid: int) -> None:
        self.one = self.all = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(pid,))
        self._thread.start()

    def end(self) -> None:
        """Look no longer."""
        self._over.set()
        self._thread.join()

    def _look(self, pid: int) -> None:
        while not self._over.wait(0.3):
            held = [resident for each in below(pid) if (resident := resident_bytes(each))]
            self.one, self.all = max([self.one, *held]), max(self.all, sum(held))


def below(pid: int) -> list[int]:
    """Return a process and all that it began, and those began."""
    parents = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
    mine = [pid]
    for each in mine:
        mine += [child for child, parent in parents.items() if parent == each]
    return mine


def resident_bytes(pid: int) -> int:
    """Return what a process holds of memory of its own; 0 for one that is gone."""
    try:
        resident, shared = (Path("/proc") / str(pid) / "statm").read_text().split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * PAGE


if __name__ == "__main__":
    sys.exit(main())
