"""One rank of a timed step: tasks sleep in the order of the Workload, its sums are those of gloo, and each waits for what it needs.

Run as a program it takes a folder with ``0.json``, ``1.json`` ... and writes ``times.json`` on rank 0: for each Workload the seconds
of its steps. The address of the others, and which of them it is, are in the environment, as for torchrun.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from ringwright.formats.sources.programs.workload_json import read_workload
from ringwright.model.workload import Workload

REPEATS = 3


def step(workload: Workload, buffers: dict[str, torch.Tensor]) -> float:
    """Return the seconds of one step on this rank."""
    waits: dict[tuple[str, int], list[str]] = {}
    for payload in workload.payloads:
        for name, far in payload.consumers:
            if not far:
                waits.setdefault((name, 0), []).append(payload.name)
    under_way: dict[tuple[str, int], dist.Work] = {}
    done: set[tuple[str, int]] = set()
    dist.barrier()
    began = time.perf_counter()
    for name, batch in workload.line("all"):
        for sent in waits.get((name, 0), ()):
            work = under_way.pop((sent, batch), None)
            if work is not None:
                work.wait()
        if workload.task[name].seconds:
            time.sleep(workload.task[name].seconds)
        done.add((name, batch))
        for payload in workload.payloads:
            if (
                name in payload.producers
                and all((each, batch) in done for each in payload.producers)
                and (payload.name, batch) not in under_way
            ):
                under_way[payload.name, batch] = dist.all_reduce(buffers[payload.name], async_op=True)
    for work in under_way.values():
        work.wait()
    return time.perf_counter() - began


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    taken = []
    for path in sorted(folder.glob("[0-9].json")):
        workload = read_workload(path)
        buffers = {each.name: torch.ones(max(1, each.size_bytes // 4)) for each in workload.payloads}
        step(workload, buffers)
        taken.append([step(workload, buffers) for _ in range(REPEATS)])
    if os.environ["RANK"] == "0":
        (folder / "times.json").write_text(json.dumps(taken))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
