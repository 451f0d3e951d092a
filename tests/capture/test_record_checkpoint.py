"""A job that saves and loads checkpoints on real ranks: what that sends is told by its name, apart from training."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import ringwright
from recorded_jobs import Job, summary, torchrun
from ringwright.reports import terminal

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]
STEPS, RANKS = 4, 2
SAVING = """
import sys
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, StateDictOptions
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
saving, pending = dist.new_group(backend="gloo"), None
for step in range(4):
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1:
        weights, _ = get_state_dict(model, optimizer)
        dcp.save({"model": weights}, checkpoint_id="saved")
    if step == 2 and sys.argv[1] == "async":
        pending = dcp.async_save({"model": weights}, checkpoint_id="saved-later", process_group=saving)
if pending is not None:
    pending.result()
dcp.load({"model": weights}, checkpoint_id="saved")
dist.barrier()
print("done")
dist.destroy_process_group()
"""
PROFILED = """
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
with torch.profiler.profile(record_shapes=True) as profile:
    for step in range(3):
        model(torch.ones(4, 64)).sum().backward()
        if step == 1:
            dcp.save({"model": model.state_dict()}, checkpoint_id="saved")
profile.export_chrome_trace(f"rank{dist.get_rank()}.json")
dist.destroy_process_group()
"""


def saved(folder: Path, what: str, *options: str) -> Job:
    script = folder / "saving.py"
    script.write_text(SAVING)
    return Job(folder, torchrun(script, what, ranks=RANKS), *options)


def test_checkpoints_are_told_apart_from_training_and_those_beside_it_too(tmp_path: Path) -> None:
    sent = {}
    for what in ("at once", "async"):
        folder = tmp_path / what
        folder.mkdir()
        with saved(folder, what) as job:
            code, out, err = job.ends()
        assert code == 0, err
        assert out.count("done") == RANKS
        sent[what] = told_apart(job.out)
    assert sent["async"] > sent["at once"], "more is saved"


def told_apart(capture: Path) -> int:
    """Hold a capture to training and checkpoints told apart; return how many collectives checkpoints took."""
    found = summary(capture)
    phases = {(row["phase"], row["op"]): row for row in found["by_phase"]}
    kept = {op: row for (phase, op), row in phases.items() if phase == "checkpoint"}
    # objects over gloo: their sizes are gathered first, then their bytes
    assert {"all-gather", "gather"} <= set(kept)
    assert all(row["bytes"] > 0 for row in kept.values())
    # training sends what it sends without checkpoints, and in its own phase
    assert phases["backward", "all-reduce"]["count"] == STEPS
    assert ("backward", "gather") not in phases
    by_role = {row["op"] for row in found["by_role"] if row["role"] == "checkpoint"}
    assert by_role == set(kept)
    trace = ringwright.read(capture)
    calls = trace.query("select phase, iteration, rank, duration_s from events where kind = 'collective'")
    mine = calls.filter(phase="checkpoint")
    assert mine["iteration"].null_count() == len(mine) > 0
    assert mine["duration_s"].null_count() == 0
    assert calls.filter(phase="backward")["iteration"].unique().sort().to_list() == list(range(STEPS))
    assert "phases  checkpoint: what torch.distributed.checkpoint sends" in terminal.text(found, width=120)
    return sum(row["count"] for row in kept.values())


def test_a_profile_that_the_job_takes_names_the_stretch(tmp_path: Path) -> None:
    script = tmp_path / "profiled.py"
    script.write_text(PROFILED)
    with Job(tmp_path, torchrun(script, ranks=RANKS)) as job:
        code, _, err = job.ends()
    assert code == 0, err
    trace = ringwright.read([str(tmp_path / f"rank{rank}.json") for rank in range(RANKS)])
    calls = trace.query("select phase, op, rank from events where kind = 'collective'")
    assert set(calls.filter(op="gather")["phase"]) == {"checkpoint"}
    assert calls.filter(op="all-reduce", phase="checkpoint").is_empty()
    assert calls.filter(op="all-reduce").height == 3 * RANKS
    text = terminal.text(ringwright.summary(trace), width=120)
    assert "phases  checkpoint" in text
    assert "0 B" not in text.partition("phases")[2].partition("communicators")[0]
