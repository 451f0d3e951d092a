"""gpt-oss: grouped-query attention with biases and a sink a head, every other block with a window; experts with biases.

Dimensions: the public configuration of the 120B size.
"""

from __future__ import annotations

from ringwright.workloads.families.llama import ATTENTION_USE, ends
from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm

SIZES = {
    "gpt-oss-120b": {
        "layers": 36,
        "hidden": 2880,
        "intermediate": 2880,
        "heads": 64,
        "kv_heads": 8,
        "head": 64,
        "vocabulary": 201088,
        "experts": 128,
        "active": 4,
        "window": 128,
        "positions": 131072,
    }
}
ALIASES = {"gpt-oss": "gpt-oss-120b"}
SEQUENCES = {"gpt-oss-120b": 4096}  # tokens, as they were trained


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden, middle, number = dims["hidden"], dims["intermediate"], dims["experts"]
    queries, keys = dims["heads"] * dims["head"], dims["kv_heads"] * dims["head"]
    layers = (
        linear("q", queries, hidden, "columns", bias=True),
        linear("k", keys, hidden, "columns", bias=True),
        linear("v", keys, hidden, "columns", bias=True),
        linear("o", hidden, queries, "rows", bias=True),
        Layer("sinks", ((dims["heads"],),), "columns"),
        linear("router", number, hidden, bias=True),
        Layer("experts_in", ((number, 2 * middle, hidden), (number, 2 * middle)), "columns", expert=True),
        Layer("experts_out", ((number, hidden, middle), (number, hidden)), "rows", expert=True),
        norm("input_norm", hidden),
        norm("post_norm", hidden),
    )
    used = (*ATTENTION_USE[:4], "sinks", *ATTENTION_USE[4:], "router", "experts_in", "experts_out")
    before, after = ends(dims)
    blocks = [ModelBlock(f"layer{at}", layers, used, moe=True) for at in range(dims["layers"])]
    return Anatomy((before, *blocks, after), buffers=((4, dims["head"] // 2),) * 2)
