"""One rank of a job that runs a model: ``python -m ringwright_lab.models.job JSON``, started as torchrun starts ranks.

The JSON object is a :class:`~ringwright_lab.models.spec.ExperimentSpec`. RANK and WORLD_SIZE, and MASTER_ADDR and MASTER_PORT
or "store" in the object, say who meets where. Rank 0 prints one JSON line; with "out" each rank writes ``rank_N.json``.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from ringwright.ground.errors import RingwrightError
from ringwright_lab.models.deepseek_serving import Server, Shares
from ringwright_lab.models.families import ModelFamily, family
from ringwright_lab.models.label import NOW
from ringwright_lab.models.language import answering, tokens
from ringwright_lab.models.loop import Done, serve, train
from ringwright_lab.models.parallel import data, expert, pipeline, sharded, tensor
from ringwright_lab.models.parallel.groups import join, roles
from ringwright_lab.models.spec import ExperimentSpec, read_spec
from ringwright_lab.models.tune import prepare


def run(spec: ExperimentSpec) -> Done:
    """Be one rank: join, build, spread, run, leave."""
    torch.set_num_threads(spec.threads)
    NOW.iteration, NOW.phase = -1, "setup"
    made = family(spec.model)
    _, world = join(spec)
    try:
        mesh = roles(spec, world)
        if spec.model == "deepseek-v3" and spec.mode == "inference" and spec.form in ("none", "tp"):
            return _served(spec, mesh)
        if spec.fake is None or spec.form == "ddp":  # whose native part reads memory, so its tensors are real
            return _go(_real(made, spec, mesh), made, spec, mesh)
        return _fake(made, spec, mesh)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _served(spec: ExperimentSpec, mesh: DeviceMesh | None) -> Done:
    """Serve DeepSeek-V3 with its own program."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    group = mesh.get_group("tp") if mesh is not None else None
    with FakeTensorMode() if spec.fake is not None else nullcontext():
        rank = mesh.get_local_rank("tp") if mesh is not None else 0
        server = Server(Shares(spec, group, rank, spec.ranks("tp")))
        return serve(server, tokens(spec, 0, 0, 1)[0], spec)


def _real(made: ModelFamily, spec: ExperimentSpec, mesh: DeviceMesh | None) -> nn.Module:
    """Build the model with the same random weights on every rank, and spread it."""
    torch.manual_seed(spec.seed)
    return _spread(_built(made, spec), made, spec, mesh)


def _fake(made: ModelFamily, spec: ExperimentSpec, mesh: DeviceMesh | None) -> Done:
    """Build the model without memory and run it on tensors that have shapes only."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        model = _built(made, spec)
    model = _spread(model, made, spec, mesh)
    with FakeTensorMode(allow_non_fake_inputs=True):
        return _go(model.to_empty(device="cpu"), made, spec, mesh)


def _built(made: ModelFamily, spec: ExperimentSpec) -> nn.Module:
    model = made.build(spec.dims)
    if spec.fake is not None and "experts" in spec.dims:
        model.config._experts_implementation = "batched_mm"  # the usual one takes fake tensors of one type only
    prepare(model, made, spec)
    return model.to(getattr(torch, spec.dtype))


def _spread(model: nn.Module, made: ModelFamily, spec: ExperimentSpec, mesh: DeviceMesh | None) -> nn.Module:
    """Spread the model over the ranks in the form of the grid point."""
    if mesh is None or spec.form == "pp":  # which cuts the model when it runs
        return model
    if spec.form == "fsdp":
        return sharded.spread(model, made, mesh)
    if spec.form in ("tp", "tp+fsdp"):
        model = tensor.spread(model, made, spec, mesh)
        return sharded.spread(model, made, mesh) if spec.form == "tp+fsdp" else model
    if spec.form == "ep":
        return expert.spread(model, made, spec, mesh)
    return data.spread(model, spec, mesh)


def _go(model: nn.Module, made: ModelFamily, spec: ExperimentSpec, mesh: DeviceMesh | None) -> Done:
    """Run the loop of the mode."""
    if spec.form == "pp" and mesh is not None:
        stage = pipeline.stage_of(model, spec, mesh)
        if spec.mode == "inference":
            return serve(pipeline.Relay(stage, spec, mesh), made.tokens(spec, 0, 0, 1)[0], spec)
        return pipeline.train(stage, made, spec, mesh)
    if spec.mode == "inference":
        prompt = made.tokens(spec, 0, part(spec, mesh), parts(spec))[0]
        return serve(answering(model), prompt, spec)
    return train(model, made, spec, part(spec, mesh), parts(spec))


def part(spec: ExperimentSpec, mesh: DeviceMesh | None) -> int:
    """Return which part of the data is this rank's."""
    return next((mesh.get_local_rank(role) for role in ("dp", "ep") if mesh is not None and role in spec.parallel), 0)


def parts(spec: ExperimentSpec) -> int:
    """Return how many parts the data have."""
    return spec.ranks("dp") * spec.ranks("ep")


def main(argv: list[str]) -> int:
    """Run the grid point that the first argument describes; print what rank 0 found."""
    import os

    try:
        given: dict[str, Any] = json.loads(argv[0])
        spec = read_spec(given)
        done = run(spec)
    except RingwrightError as error:
        print(error, file=sys.stderr)  # noqa: T201 - its answer
        return error.exit_code
    rank = int(os.environ.get("RANK", "0"))
    if spec.out:
        (Path(spec.out) / f"rank_{rank}.json").write_text(json.dumps(asdict(done)))
    if rank == 0:
        print(json.dumps({"times_s": done.times_s, "loss": done.losses[-1] if done.losses else None}))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
