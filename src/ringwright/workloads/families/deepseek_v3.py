"""DeepSeek-V3: multi-head latent attention, a few dense blocks, then routed experts beside shared ones.

Dimensions: the public 671B configuration of its inference program, and the names given there.
"""

from __future__ import annotations

from ringwright.workloads.families.llama import ends, gated
from ringwright.workloads.families.mixtral import experts
from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm

SIZES = {
    "tiny": {
        "layers": 3,
        "dense_layers": 1,
        "hidden": 128,
        "intermediate": 256,
        "expert_intermediate": 64,
        "heads": 4,
        "q_rank": 48,
        "kv_rank": 32,
        "nope": 16,
        "rope": 8,
        "value": 16,
        "experts": 8,
        "shared": 1,
        "active": 2,
        "groups": 4,
        "active_groups": 2,
        "vocabulary": 512,
        "positions": 256,
    },
    "deepseek-v3": {
        "layers": 61,
        "dense_layers": 3,
        "hidden": 7168,
        "intermediate": 18432,
        "expert_intermediate": 2048,
        "heads": 128,
        "q_rank": 1536,
        "kv_rank": 512,
        "nope": 128,
        "rope": 64,
        "value": 128,
        "experts": 256,
        "shared": 1,
        "active": 8,
        "groups": 8,
        "active_groups": 4,
        "vocabulary": 129280,
        "positions": 163840,
    },
}
ALIASES = {"deepseek": "deepseek-v3"}
SEQUENCES = {"deepseek-v3": 4096}  # tokens, as they were trained
IS_BUILT = True
ATTENTION_USE = ("input_norm", "q_down", "q_norm", "q_up", "kv_down", "kv_norm", "kv_up", "o", "post_norm")


def attention(dims: dict[str, int]) -> tuple[Layer, ...]:
    """Return the matrices of latent attention; only what has heads is cut."""
    hidden, heads = dims["hidden"], dims["heads"]
    return (
        linear("q_down", dims["q_rank"], hidden),
        norm("q_norm", dims["q_rank"]),
        linear("q_up", heads * (dims["nope"] + dims["rope"]), dims["q_rank"], "columns"),
        linear("kv_down", dims["kv_rank"] + dims["rope"], hidden),
        norm("kv_norm", dims["kv_rank"]),
        linear("kv_up", heads * (dims["nope"] + dims["value"]), dims["kv_rank"], "columns"),
        linear("o", hidden, heads * dims["value"], "rows"),
    )


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden, number = dims["hidden"], dims["experts"]
    norms = (norm("input_norm", hidden), norm("post_norm", hidden))
    dense = (*attention(dims), *gated(hidden, dims["intermediate"]), *norms)
    shared = gated(hidden, dims["shared"] * dims["expert_intermediate"], "shared_")
    sparse = (
        *attention(dims),
        *experts(number, hidden, dims["expert_intermediate"]),
        linear("router", number, hidden),
        *shared,
        *norms,
    )
    dense_use = (*ATTENTION_USE, "gate", "up", "down")
    sparse_use = (*ATTENTION_USE, "router", "experts_in", "experts_out", *(layer.name for layer in shared))
    before, after = ends(dims)
    blocks = [
        ModelBlock(f"layer{at}", dense, dense_use)
        if at < dims["dense_layers"]
        else ModelBlock(f"layer{at}", sparse, sparse_use, moe=True)
        for at in range(dims["layers"])
    ]
    corrections = ((4, number),) * (dims["layers"] - dims["dense_layers"])
    return Anatomy((before, *blocks, after), buffers=(*corrections, *((4, dims["rope"] // 2),) * 2))


def untrained(dims: dict[str, int]) -> int:
    """Return the corrections that its routers add to the scores, which no gradient reaches."""
    return (dims["layers"] - dims["dense_layers"]) * dims["experts"]
