"""Mixtral: Llama with a mixture of experts in every block; the experts' matrices are stacked, gate and up as one.

Dimensions: the public configuration of Mixtral 8x7B.
"""

from __future__ import annotations

from ringwright.workloads.families.llama import ATTENTION_USE, attention, ends
from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm

SIZES = {
    "tiny": {
        "layers": 2,
        "hidden": 128,
        "intermediate": 192,
        "heads": 8,
        "kv_heads": 4,
        "head": 16,
        "vocabulary": 512,
        "experts": 4,
        "active": 2,
        "positions": 256,
    },
    "mixtral-8x7b": {
        "layers": 32,
        "hidden": 4096,
        "intermediate": 14336,
        "heads": 32,
        "kv_heads": 8,
        "head": 128,
        "vocabulary": 32000,
        "experts": 8,
        "active": 2,
        "positions": 32768,
    },
}
ALIASES = {"mixtral": "mixtral-8x7b"}
SEQUENCES = {"mixtral-8x7b": 4096}  # tokens, as they were trained
IS_BUILT = True


def experts(number: int, hidden: int, intermediate: int) -> tuple[Layer, ...]:
    """Return the stacked matrices of routed experts."""
    return (
        Layer("experts_in", ((number, 2 * intermediate, hidden),), "columns", expert=True),
        Layer("experts_out", ((number, hidden, intermediate),), "rows", expert=True),
    )


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden = dims["hidden"]
    layers = (
        *attention(dims),
        linear("router", dims["experts"], hidden),
        *experts(dims["experts"], hidden, dims["intermediate"]),
        norm("input_norm", hidden),
        norm("post_norm", hidden),
    )
    used = (*ATTENTION_USE, "router", "experts_in", "experts_out")
    before, after = ends(dims)
    blocks = [ModelBlock(f"layer{at}", layers, used, moe=True) for at in range(dims["layers"])]
    return Anatomy((before, *blocks, after), buffers=((4, dims["head"] // 2),) * 2)
