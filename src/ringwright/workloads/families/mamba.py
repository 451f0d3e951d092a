"""Mamba: blocks of a selective state space in place of attention and MLP; one matrix for embedding and outputs.

A block projects to twice its inner width, convolves each channel over four tokens, makes from it the step and the matrices of its
recurrence, runs that over the sequence, and projects back. Operations are those of the matrices: the convolution and the
recurrence pass over memory, which is what they take time for.

Dimensions: Gu and Dao, Mamba (2023), table 12, and the public configurations, whose vocabulary is filled up to 50,280 words.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm

COMMON = {"state": 16, "taps": 4, "vocabulary": 50280}
SIZES = {
    "mamba-130m": {"layers": 24, "hidden": 768, "inner": 1536, "rank": 48, **COMMON},
    "mamba-370m": {"layers": 48, "hidden": 1024, "inner": 2048, "rank": 64, **COMMON},
    "mamba-790m": {"layers": 48, "hidden": 1536, "inner": 3072, "rank": 96, **COMMON},
    "mamba-1.4b": {"layers": 48, "hidden": 2048, "inner": 4096, "rank": 128, **COMMON},
    "mamba-2.8b": {"layers": 64, "hidden": 2560, "inner": 5120, "rank": 160, **COMMON},
}
ALIASES = {"mamba": "mamba-2.8b"}
SEQUENCES = dict.fromkeys(SIZES, 2048)  # tokens, as they were trained
_WHOLE = "its public code makes the recurrence from all channels of a token, on one rank"
REFUSED = {
    "tp": (_WHOLE, "dp, zero1 or fsdp"),
    "cp": ("its public code runs the recurrence over whole sequences, on one rank", "dp, zero1 or fsdp"),
    "pp": ("its public code has no stages", "dp, zero1 or fsdp"),
}


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden, inner, state, rank = dims["hidden"], dims["inner"], dims["state"], dims["rank"]
    layers = (
        norm("norm", hidden),
        Layer("scan", ((inner, state), (inner,))),
        Layer("taps", ((inner, 1, dims["taps"]), (inner,))),
        linear("in", 2 * inner, hidden, "columns"),
        linear("selection", rank + 2 * state, inner),
        linear("step", inner, rank, bias=True),
        linear("out", hidden, inner, "rows"),
    )
    use = ("norm", "in", "taps", "selection", "step", "scan", "out")
    words = Layer("words", ((dims["vocabulary"], hidden),), "vocabulary", tied=True)
    before = ModelBlock("embedding", (words,), unit="root")
    after = ModelBlock("head", (norm("norm", hidden),), unit="root")
    return Anatomy((before, *(ModelBlock(f"layer{at}", layers, use) for at in range(dims["layers"])), after))
