"""Small jobs over libraries that others wrote, on the CPU: ``two_source_jobs.py JOB FOLDER`` is one rank of one of them.

PyTorch's profiler is on from before the first call to after the last, and leaves ``FOLDER/rank<n>.json``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STEPS, WIDTH, LAYERS, BATCH = 3, 32, 4, 8


def network(layers: int = LAYERS, width: int = WIDTH) -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)))


def train(model: nn.Module, steps: int = STEPS) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(BATCH, WIDTH)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def ddp() -> None:
    from torch.nn.parallel import DistributedDataParallel

    train(DistributedDataParallel(network()))


def fsdp2() -> None:
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in model:
        fully_shard(layer)
    train(fully_shard(model))


def fsdp2_tensor() -> None:
    """Two groups a rank: layers are split over pairs, and sharded over the others."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(fully_shard(model, mesh=mesh["dp"]))


def tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    blocks = [nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(2)]
    for block in blocks:
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(nn.Sequential(*blocks))


def pipeline(schedule: str) -> None:
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleInterleaved1F1B

    rank, world = dist.get_rank(), dist.get_world_size()
    rounds = 1 if schedule == "1f1b" else 2
    stages = [
        PipelineStage(network(1), rank + world * turn, world * rounds, torch.device("cpu")) for turn in range(rounds)
    ]
    how = {"n_microbatches": 4, "loss_fn": nn.functional.mse_loss}
    steps = Schedule1F1B(stages[0], **how) if rounds == 1 else ScheduleInterleaved1F1B(stages, **how)
    for _ in range(STEPS):
        given = (torch.randn(BATCH, WIDTH),) if rank == 0 else ()
        is_last = rank == world - 1
        steps.step(*given, **({"target": torch.randn(BATCH, WIDTH), "losses": []} if is_last else {}))


def accelerated() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = accelerator.prepare(network(), torch.optim.SGD(network().parameters(), lr=0.01))
    for _ in range(2 * STEPS):
        with accelerator.accumulate(model):
            loss = model(torch.randn(BATCH, WIDTH)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.gather(loss.detach().reshape(1))


def trainer() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    rows = [{"input_ids": list(range(16)), "labels": list(range(16))} for _ in range(16)]
    said = TrainingArguments(
        output_dir=tempfile.gettempdir(),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model=model, args=said, train_dataset=rows).train()


def lightning() -> None:
    import lightning
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = network()

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(batch[0]).square().mean()
            self.log("loss", loss, on_epoch=True, sync_dist=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    os.environ.setdefault("TORCHELASTIC_RUN_ID", "two-sources")
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    fit = lightning.Trainer(accelerator="cpu", devices=dist.get_world_size(), strategy="ddp", max_steps=STEPS, **quiet)
    fit.fit(Module(), DataLoader(TensorDataset(torch.randn(8 * BATCH, WIDTH)), batch_size=BATCH))


def zero2() -> None:
    import deepspeed

    model = network()
    said = {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=said)
    for _ in range(STEPS):
        engine.backward(engine(torch.randn(BATCH, WIDTH)).square().mean())
        engine.step()


JOBS: dict[str, Callable[[], None]] = {
    "ddp": ddp,
    "fsdp2": fsdp2,
    "fsdp2-tensor": fsdp2_tensor,
    "tensor-parallel": tensor_parallel,
    "pipeline-1f1b": partial(pipeline, "1f1b"),
    "pipeline-interleaved": partial(pipeline, "interleaved"),
    "accelerate": accelerated,
    "trainer": trainer,
    "lightning": lightning,
    "deepspeed": zero2,
}


def main() -> None:
    job, folder = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        JOBS[job]()
        dist.barrier()
    profile.export_chrome_trace(str(folder / f"rank{dist.get_rank()}.json"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
