"""A job that saves and loads checkpoints on real ranks: what that sends is told by its name, apart from training."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import ringwright
import started_ranks
from recorded_jobs import Job, summary
from ringwright.reports import terminal

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]
PLAIN, STEPS, RANKS = 4, 7, 2
SAVING = f"""
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
saving, pending = dist.new_group(backend="gloo"), None
for step in range({PLAIN}):
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1:
        weights, _ = get_state_dict(model, optimizer)
        dcp.save({{"model": weights}}, checkpoint_id="saved")
    if step == 2:
        pending = dcp.async_save({{"model": weights}}, checkpoint_id="saved-later", process_group=saving)
pending.result()
dcp.load({{"model": weights}}, checkpoint_id="saved")
with torch.profiler.profile(record_shapes=True) as profile:
    for step in range({STEPS - PLAIN}):
        model(torch.ones(4, 64)).sum().backward()
        optimizer.step()
        if step == 1:
            dcp.save({{"model": model.state_dict()}}, checkpoint_id="saved-again")
profile.export_chrome_trace(f"rank{{dist.get_rank()}}.json")
dist.barrier()
print("done")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of the one job, whose own profiles lie beside it."""
    folder = tmp_path_factory.mktemp("saving")
    script = folder / "saving.py"
    script.write_text(SAVING)
    with Job(folder, started_ranks.command(script, ranks=RANKS)) as job:
        code, out, err = job.ends()
    assert code == 0, err
    assert out.count("done") == RANKS
    return job.out


def test_checkpoints_are_told_apart_from_training_and_those_beside_it_too(capture: Path) -> None:
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
    calls = trace.query("select phase, iteration, rank, duration_s, communicator from events where kind = 'collective'")
    mine = calls.filter(phase="checkpoint")
    assert mine["iteration"].null_count() == len(mine) > 0
    assert mine["duration_s"].null_count() == 0
    assert calls.filter(phase="backward")["iteration"].unique().sort().to_list() == list(range(STEPS))
    assert "phases  checkpoint: what torch.distributed.checkpoint sends" in terminal.text(found, width=120)
    assert mine["communicator"].n_unique() == 2, "what is saved beside training has a group of its own"


def test_a_profile_that_the_job_takes_names_the_stretch(capture: Path) -> None:
    trace = ringwright.read([str(capture.parent / f"rank{rank}.json") for rank in range(RANKS)])
    calls = trace.query("select phase, op, rank from events where kind = 'collective'")
    assert set(calls.filter(op="gather")["phase"]) == {"checkpoint"}
    assert calls.filter(op="all-reduce", phase="checkpoint").is_empty()
    assert calls.filter(op="all-reduce").height == (STEPS - PLAIN) * RANKS
    text = terminal.text(ringwright.summary(trace), width=120)
    assert "phases  checkpoint" in text
    assert "0 B" not in text.partition("phases")[2].partition("communicators")[0]
