"""Fine-tuning: what stays frozen, and what is trained beside it."""

from __future__ import annotations

import torch
from torch import nn

from ringwright_lab.models.families import ModelFamily
from ringwright_lab.models.spec import ExperimentSpec

BESIDE = ("q_proj", "v_proj", "q_b_proj", "kv_b_proj", "query", "value", "c_attn")  # attention's matrices, by name


class Beside(nn.Module):
    """A frozen matrix and a product of two thin ones that is added to it (Hu et al., LoRA, 2021)."""

    def __init__(self, frozen: nn.Module, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the frozen answer and the update."""
        output: torch.Tensor = self.frozen(x) + self.up(self.down(x))
        return output


def prepare(model: nn.Module, family: ModelFamily, spec: ExperimentSpec) -> None:
    """Freeze what the mode freezes; "training" freezes nothing."""
    if spec.mode == "training":
        return
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    if spec.mode == "head":
        for module in family.head(model):
            module.requires_grad_(True)
    if spec.mode == "lora":
        for block in family.blocks(model):
            _add_beside(block, spec.rank_of_update)


def _add_beside(block: nn.Module, rank: int) -> None:
    """Put thin matrices beside those of the attention; the library's Conv1D stores inputs first."""
    for owner in list(block.modules()):
        for name, child in list(owner.named_children()):
            if name in BESIDE and not isinstance(owner, Beside):
                first, second = child.weight.shape
                inputs, outputs = (second, first) if isinstance(child, nn.Linear) else (first, second)
                setattr(owner, name, Beside(child, inputs, outputs, rank))
