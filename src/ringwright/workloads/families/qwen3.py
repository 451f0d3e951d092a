"""Qwen3 with experts: Llama's attention with normalised queries and keys, a mixture of small experts in every block.

Dimensions: the public configurations of 30B-A3B and 235B-A22B.
"""

from __future__ import annotations

from ringwright.workloads.families.llama import attention, ends
from ringwright.workloads.families.mixtral import experts
from ringwright.workloads.parts import Anatomy, ModelBlock, linear, norm

SIZES = {
    "qwen3-30b-a3b": {
        "layers": 48,
        "hidden": 2048,
        "intermediate": 768,
        "heads": 32,
        "kv_heads": 4,
        "head": 128,
        "vocabulary": 151936,
        "experts": 128,
        "active": 8,
        "positions": 40960,
    },
    "qwen3-235b-a22b": {
        "layers": 94,
        "hidden": 4096,
        "intermediate": 1536,
        "heads": 64,
        "kv_heads": 4,
        "head": 128,
        "vocabulary": 151936,
        "experts": 128,
        "active": 8,
        "positions": 40960,
    },
}
ALIASES = {"qwen3-30b": "qwen3-30b-a3b", "qwen3-235b": "qwen3-235b-a22b"}
SEQUENCES = {"qwen3-30b-a3b": 4096, "qwen3-235b-a22b": 4096}  # tokens, as they were trained
USED = ("input_norm", "q", "k", "v", "q_norm", "k_norm", "o", "post_norm", "router", "experts_in", "experts_out")


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden, head = dims["hidden"], dims["head"]
    layers = (
        *attention(dims),
        norm("q_norm", head),
        norm("k_norm", head),
        linear("router", dims["experts"], hidden),
        *experts(dims["experts"], hidden, dims["intermediate"]),
        norm("input_norm", hidden),
        norm("post_norm", hidden),
    )
    before, after = ends(dims)
    blocks = [ModelBlock(f"layer{at}", layers, USED, moe=True) for at in range(dims["layers"])]
    return Anatomy((before, *blocks, after), buffers=((4, head // 2),) * 2)
