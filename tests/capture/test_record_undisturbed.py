"""A recorded job does what it does without: the same parameters to the bit, the same output, warnings and exit code."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

import started_ranks
from patience import HANG_S
from recorded_jobs import Job, calls, environment, lines, torchrun

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent")
RECORDER = Path(__file__).parents[2] / "src" / "ringwright" / "capture" / "recorder"

BEGIN = """
import hashlib, os, sys, warnings
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
def print(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole lines, whoever writes beside it
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
    def forward(self, x): return x + self.down(torch.relu(self.up(x)))
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Block() for _ in range(3)])
    def forward(self, x):
        for layer in self.layers: x = layer(x)
        return x
def train(model, steps=3, call=None):
    best = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        best.zero_grad()
        (model if call is None else call)(torch.full((4, 8, 16), 0.1 * (step + 1) + rank)).square().mean().backward()
        best.step()
def tell(model):
    h = hashlib.sha256()
    for p in model.parameters():
        p = p.full_tensor() if hasattr(p, "full_tensor") else p
        h.update(p.detach().numpy().tobytes())
    print("rank", rank, h.hexdigest())
"""
END = """
dist.barrier()
dist.destroy_process_group()
"""
BODIES = {
    "ddp": """
model = torch.nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=0.01)
train(model)
with torch.no_grad(): model(torch.ones(2, 8, 16))
with torch.inference_mode(): model(torch.ones(2, 8, 16))
tell(model)
""",
    "fsdp2": """
from torch.distributed.fsdp import fully_shard
model = Model()
for layer in model.layers: fully_shard(layer)
fully_shard(model)
train(model)
tell(model)
""",
    "tensor-parallel": """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, parallelize_module
from torch.distributed.tensor import Shard, Replicate
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
model = Model()
for layer in model.layers: parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
train(model)
tell(model)
x = torch.distributed.tensor.distribute_tensor(torch.ones(4, 16), mesh, [Replicate()])
print(rank, torch.distributed.tensor.DTensor.from_local(torch.ones(4, 16), mesh, [torch.distributed.tensor.Partial()]).redistribute(placements=[Shard(0)]).to_local().sum())
""",
    "pipeline": """
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
stage = PipelineStage(Block(), rank, world, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2, loss_fn=lambda out, wanted: (out - wanted).square().mean())
data = torch.ones(4, 16)
if rank == 0: schedule.step(data)
else: schedule.step(target=data * 2)
tell(stage.submod)
""",
    "compiled": """
model = Model()
train(model, call=torch.compile(model, fullgraph=True, backend="aot_eager"))
shell = torch.nn.parallel.DistributedDataParallel(model)
train(shell, call=torch.compile(shell, backend="aot_eager"))
model.compile(fullgraph=True, backend="aot_eager")
train(model)
from torch._dynamo.utils import counters
print(dict(counters["stats"]))
tell(model)
print(len(torch.export.export(Model(), (torch.ones(2, 8, 16),)).graph.nodes), len(torch.fx.symbolic_trace(Model()).graph.nodes))
""",
    "checkpointed": """
from torch.utils.checkpoint import checkpoint
class Again(torch.nn.Module):
    def __init__(self, inner, reentrant):
        super().__init__(); self.inner, self.reentrant = inner, reentrant
    def forward(self, x): return checkpoint(self.inner, x, use_reentrant=self.reentrant)
for reentrant in (False, True):
    model = Model()
    model.layers = torch.nn.ModuleList([Again(layer, reentrant) for layer in model.layers])
    first = torch.nn.Linear(16, 16)
    best = torch.nn.Sequential(first, model)
    train(torch.nn.parallel.DistributedDataParallel(best))
    tell(best)
""",
    "oddities": """
import copy, io, subprocess, threading, torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset
model = Model()
torch.save(model, io.BytesIO())
copy.deepcopy(model)
out = model(torch.ones(2, 8, 16))
torch.save(out, io.BytesIO())
class Broken(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.inner = torch.nn.Linear(2, 2)
    def forward(self, x): return self.inner(x)
for _ in range(2):
    try: Broken()(torch.ones(3, 3))
    except RuntimeError as error: print(rank, "caught", type(error).__name__)
train(torch.nn.parallel.DistributedDataParallel(model))
tell(model)
for context in ("fork", "spawn") if rank == 0 else ():
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2, num_workers=2, multiprocessing_context=context)
    print(context, sum(batch[0].sum().item() for batch in loader))
if os.fork() == 0:
    torch.nn.Linear(2, 2)(torch.ones(1, 2)); os._exit(0)
os.wait()
print(subprocess.run([sys.executable, "-c", "print('sub')"], capture_output=True, text=True).stdout.strip())
workers = [threading.Thread(target=lambda: model(torch.ones(2, 8, 16)).sum().backward()) for _ in range(4)]
[worker.start() for worker in workers]; [worker.join() for worker in workers]
from torch.func import functional_call, grad, vmap
held = dict(model.named_parameters())
print(rank, vmap(grad(lambda p, x: functional_call(model, p, (x,)).sum()), (None, 0))(held, torch.ones(3, 8, 16))["layers.0.up.bias"].sum().item())
same = [dist.new_group([0, 1]) for _ in range(3)]
for group in same: dist.all_reduce(torch.ones(4), group=group)
dist.destroy_process_group(same[0])
dist.monitored_barrier()
dist.destroy_process_group()
dist.init_process_group("cpu:gloo", store=dist.FileStore(os.environ["RW_AGAIN"], world), rank=rank, world_size=world)
for _ in range(2): dist.all_reduce(torch.ones(5))
""",
}


def results(folder: Path, script: Path) -> list[tuple[int, list[str]]]:
    """The exit code and sorted lines of output of a job, alone and recorded; warnings are errors in both."""
    found = []
    for name in ("alone", "recorded"):
        more = {"RW_AGAIN": str(folder / f"again-{name}")}
        command = [sys.executable, "-W", "ignore", *torchrun(script)[1:]]
        if name == "alone":
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment(**more),
                capture_output=True,
                text=True,
                timeout=HANG_S,
                check=False,
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            with Job(folder, command, "--no-summary", **more) as job:
                code, out, err = job.ends()
        assert code == 0, f"{name}: {err[-3000:]}"
        found.append((code, sorted(out.splitlines())))
    return found


@needs_torch
@pytest.mark.torch
@pytest.mark.slow
def test_the_same_to_the_bit(tmp_path: Path) -> None:
    """All of it in one job, since to load the library and compiler takes longest; what makes odd groups comes last."""
    script = tmp_path / "job.py"
    script.write_text('if __name__ == "__main__":\n' + textwrap.indent(BEGIN + "".join(BODIES.values()) + END, "    "))
    alone, recorded = results(tmp_path, script)
    assert recorded == alone
    assert calls(tmp_path / "out") == calls(tmp_path / "out", "e") > 0, "every call has its end"
    told = [value for value in lines(tmp_path / "out") if isinstance(value, list) and value[0] in ("d", "r")]
    assert told == []
    groups = [value for value in lines(tmp_path / "out") if isinstance(value, list) and value[0] == "g"]
    assert {value[2] for value in groups} >= {"0", "0#1"}, "the group made after destroy_process_group is another"
    assert {value[4] for value in groups} == {"gloo"}
    assert len(list((tmp_path / "out").glob("calls.*"))) == 2


STRESS = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
groups, waiting = [None, dist.new_group([0, 1]), dist.new_group([0, 1])], []
held = [torch.ones(4) for _ in range(64)]
for turn in range(int(sys.argv[1])):
    waiting.append(dist.all_reduce(held[turn % 64], group=groups[turn % 3], async_op=True))
    if turn % 100 == 0:
        waiting.append(dist.reduce_scatter_tensor(torch.empty(2), torch.ones(4), async_op=True))
    if turn % 250 == 0:
        (dist.send if rank == 0 else dist.recv)(torch.ones(4), 1 - rank)
        there = dist.isend(torch.ones(4), 1 - rank, tag=5)
        dist.irecv(torch.empty(4), 1 - rank, tag=5).wait()
        there.wait()
    if len(waiting) > 500:
        for work in waiting: work.wait()
        waiting = []
for work in waiting: work.wait()
dist.monitored_barrier()
dist.barrier()
dist.destroy_process_group()
"""


@needs_torch
@pytest.mark.torch
@pytest.mark.slow
def test_thousands_of_calls_in_flight(tmp_path: Path) -> None:
    turns = 3000
    script = tmp_path / "stress.py"
    script.write_text(STRESS)
    with Job(tmp_path, started_ranks.command(script, str(turns)), "--no-summary") as job:
        code, _, err = job.ends()
    assert code == 0, err
    assert calls(job.out) == calls(job.out, "e") == 2 * (turns + turns // 100 + 3 * turns // 250 + 2)


def test_other_start_up_files_still_run(tmp_path: Path) -> None:
    """sitecustomize on the user's PYTHONPATH, usercustomize, warnings as errors; a job that never imports torch."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("print('site', __name__)")
    (site / "usercustomize.py").write_text("print('user')")
    (site / "mine.py").write_text("print('mine')")
    code = "import mine, os, sys; print(os.environ['PYTHONPATH'].split(os.pathsep)[-1] == sys.argv[1], 'torch' in sys.modules)"
    command = [sys.executable, "-W", "error", "-c", code, str(site)]
    with Job(tmp_path, command, PYTHONPATH=str(Path(__file__).parents[2] / "src") + ":" + str(site)) as job:
        ended, out, err = job.ends()
    assert ended == 0, err
    assert [line for line in out.splitlines() if line != "site sitecustomize"] == (
        ["user"] * out.splitlines().count("user") + ["mine", "True False"]
    )
    assert "site sitecustomize" in out
    assert "nothing was recorded" in err
    assert sorted(path.name.split(".")[0] for path in job.out.iterdir()) == ["run"]


def test_the_recorder_reads_as_python_3_8() -> None:
    files = sorted(RECORDER.rglob("*.py"))
    assert len(files) >= 9
    for path in files:
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        plain = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        assert plain or path.name in ("__init__.py", "sitecustomize.py"), f"{path.name}: annotations would be evaluated"
