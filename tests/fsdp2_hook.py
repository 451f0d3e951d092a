"""One real rank: shard a small model by FSDP2, give its modules the lists of a hook, say who got how many, take a step.

python fsdp2_hook.py HOOK FOLDER
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LAYERS = 4


class SmallModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(LAYERS)])
        self.head = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main() -> None:
    hook, folder = sys.argv[1:]
    dist.init_process_group("gloo", store=dist.FileStore(str(Path(folder) / "store"), 1), rank=0, world_size=1)
    mesh, model = init_device_mesh("cpu", (1,)), SmallModel()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    runpy.run_path(hook)["prefetch"](model)
    states = [each._get_fsdp_state() for each in (model, *model.layers)]
    model(torch.ones(2, 8)).sum().backward()
    lists = {
        "forward": [[states.index(other) for other in each._states_to_forward_prefetch] for each in states],
        "backward": [[states.index(other) for other in each._states_to_backward_prefetch] for each in states],
        "gradients": all(each.grad is not None for each in model.parameters()),
    }
    print(json.dumps(lists))
    dist.destroy_process_group()


main()
