"""Pipeline parallelism: each rank of ``pp`` has consecutive blocks; micro-batches travel from stage to stage.

Training follows PyTorch's own 1F1B schedule. Serving hands the hidden states on, and the last stage sends the next tokens to
the first.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from ringwright.ground.errors import UsageError
from ringwright_lab.models.families import ModelFamily
from ringwright_lab.models.label import NOW, phase
from ringwright_lab.models.loop import RATE, Done, number
from ringwright_lab.models.spec import ExperimentSpec

STAGED = ("llama", "mixtral", "deepseek-v3")  # in the others the first and the last stage share a matrix


class StageModule(nn.Module):
    """The blocks of one rank; the first stage has the embedding too, the last one the norm and the head."""

    def __init__(self, model: nn.Module, stage: int, stages: int) -> None:
        super().__init__()
        layers = list(model.model.layers)
        mine = range(len(layers) * stage // stages, len(layers) * (stage + 1) // stages)
        self.words = model.model.embed_tokens if not stage else None
        self.layers = nn.ModuleList(layers[at] for at in mine)
        self.turns = model.model.rotary_emb
        self.last = stage == stages - 1
        if self.last:
            self.norm, self.head = model.model.norm, model.lm_head

    def forward(self, x: torch.Tensor, cache: Any = None) -> torch.Tensor:
        """Return hidden states (batch, tokens, hidden), or logits from the last stage; x are tokens in the first one."""
        if self.words is not None:
            x = self.words(x)
        seen = cache.get_seq_length(self.layers[0].self_attn.layer_idx) if cache is not None else 0
        positions = torch.arange(seen, seen + x.shape[1]).unsqueeze(0)
        turns = self.turns(x, position_ids=positions)
        for layer in self.layers:
            x = layer(x, attention_mask=None, position_ids=positions, position_embeddings=turns, past_key_values=cache)
        if self.last:
            x = self.head(self.norm(x if cache is None else x[:, -1:]))
        return x


def stage_of(model: nn.Module, spec: ExperimentSpec, mesh: DeviceMesh) -> StageModule:
    """Return this rank's stage; UsageError for a family or a size that cannot be staged so."""
    stages = spec.ranks("pp")
    if spec.model not in STAGED:
        raise UsageError(f"'{spec.model}' cannot be staged", remedy=f"one of: {', '.join(STAGED)}")
    if stages > spec.dims["layers"] or spec.batch % spec.micro_batches or spec.micro_batches < stages:
        raise UsageError(
            f"{spec.dims['layers']} blocks, {spec.batch} sequences and {spec.micro_batches} micro-batches do not fill"
            f" {stages} stages",
            remedy="a block a stage, a micro-batch a stage, and micro-batches that divide the sequences",
        )
    return StageModule(model, mesh.get_local_rank("pp"), stages)


def train(stage: StageModule, family: ModelFamily, spec: ExperimentSpec, mesh: DeviceMesh) -> Done:
    """Run ``spec.steps`` steps; only the last stage knows the loss, the others write down None."""
    at, stages, dtype = mesh.get_local_rank("pp"), spec.ranks("pp"), getattr(torch, spec.dtype)
    rows, hidden = (spec.batch // spec.micro_batches, spec.sequence), spec.dims["hidden"]
    tokens = torch.zeros(rows, dtype=torch.long)
    states = torch.zeros(*rows, hidden, dtype=dtype, requires_grad=True)
    logits = torch.zeros(*rows, spec.dims["vocabulary"], dtype=dtype, requires_grad=True)
    made = (PipelineStage if spec.fake is None else _FakeStage)(
        stage,
        at,
        stages,
        torch.device("cpu"),
        input_args=states if at else tokens,
        output_args=logits if at == stages - 1 else states,
        group=mesh.get_group("pp"),
    )
    schedule = Schedule1F1B(made, spec.micro_batches, loss_fn=family.loss)
    optimiser = torch.optim.SGD([each for each in stage.parameters() if each.requires_grad], RATE, foreach=False)
    done = Done()
    for step in range(spec.steps):
        inputs, targets = family.tokens(spec, step, 0, 1)
        NOW.iteration = step
        started, losses = time.perf_counter(), list[torch.Tensor]()
        with phase("pipeline"):
            schedule.step(*(() if at else (inputs,)), target=targets if at == stages - 1 else None, losses=losses)
        with phase("optimiser"):
            optimiser.step()
            optimiser.zero_grad()
        done.times_s.append(time.perf_counter() - started)
        done.losses.append(number(torch.stack(losses).mean()) if losses else None)
    return done


class _FakeStage(PipelineStage):
    """A stage of the fake group: what it asks its neighbours gets no answer, so that is given here."""

    def _warmup_backward_result(self, received_result: torch.Tensor | None = None) -> torch.Tensor:
        super()._warmup_backward_result(received_result)
        return torch.tensor([1], dtype=torch.int32)


class Relay(nn.Module):
    """Serves: gives the next stage what this one made, and on the last one the logits.

    It is a module so that whoever follows modules finds a turn's messages inside the turn.
    """

    def __init__(self, stage: StageModule, spec: ExperimentSpec, mesh: DeviceMesh) -> None:
        from transformers import DynamicCache

        super().__init__()
        self.stage, self.spec, self.cache, self.group = stage, spec, DynamicCache(), mesh.get_group("pp")
        self.at, self.last = mesh.get_local_rank("pp"), spec.ranks("pp") - 1
        self.served = False

    def forward(self, prompt: torch.Tensor) -> torch.Tensor:
        """Return the logits (batch, vocabulary) after the prompt or the last tokens, which the last stage knows; else zeros."""
        batch, count = prompt.shape
        dtype = getattr(torch, self.spec.dtype)
        x = prompt
        if self.served and self.at == self.last:
            dist.send(prompt, 0, group=self.group)
        if self.at:
            x = torch.empty(batch, count, self.spec.dims["hidden"], dtype=dtype)
            dist.recv(x, self.at - 1, group=self.group)
        elif self.served:
            x = torch.empty(batch, 1, dtype=torch.long)
            dist.recv(x, self.last, group=self.group)
        x = self.stage(x, self.cache)
        self.served = True
        if self.at < self.last:
            dist.send(x.contiguous(), self.at + 1, group=self.group)
            return torch.zeros(batch, self.spec.dims["vocabulary"])
        return x[:, -1]
