"""A training job whose layers sleep for their compute: each setting in turn, on real gloo ranks. Started by lab_advise.py.

    python benchmarks/lab_advise_job.py question.json steps.jsonl          # on each rank

``ddp:CAP`` is DistributedDataParallel with buckets of so many MiB (``ddp`` alone: as shipped), anything else what
``ringwright.schedule`` takes. The model is made anew for each, and its first steps are not counted.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ringwright
from ringwright_lab.live import simulated_compute

RATE = 0.01


def train(network: Any, optimizer: Any, steps: int) -> list[float]:
    """Return the seconds of so many steps."""
    times_s, begin_s = [], time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        network(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        now_s = time.perf_counter()
        times_s.append(now_s - begin_s)
        begin_s = now_s
    return times_s


def measured(question: dict[str, Any], setting: str) -> list[float]:
    """Return the seconds of the steps with a setting, without the first ones."""
    torch.manual_seed(0)
    layers = simulated_compute.layers(question["model"], question["compute_s"], question["elements"])
    network = simulated_compute.model(layers)
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    steps = question["warmup"] + question["steps"]
    kind, _, cap_mb = setting.partition(":")
    if kind == "ddp":
        wrapped = DistributedDataParallel(network, bucket_cap_mb=float(cap_mb) if cap_mb else None)
        return train(wrapped, optimizer, steps)[question["warmup"] :]
    with ringwright.schedule(network, optimizer, setting) as live:
        times_s = train(network, optimizer, steps)
        live.flush()
    return times_s[question["warmup"] :]


def main() -> None:
    """Be a rank: every setting, as often as there are rounds, every second round the other way around."""
    question, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for turn in range(question["rounds"]):
        for setting in question["settings"][:: -1 if turn % 2 else 1]:
            times_s = measured(question, setting)
            dist.barrier()
            if dist.get_rank() == 0:
                with out.open("a") as file:
                    file.write(json.dumps({"setting": setting, "times_s": times_s}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
