"""DeepSeek-V3 as its public inference program serves it: heads, widths, experts and vocabulary shared out over ``tp``.

Per forward pass one all-reduce for the embedding, one an attention, one a dense block, two a mixture (routed and shared
experts); the logits of the last token are gathered. At 61 layers, 3 of them dense: 1 + 61 + 3 + 2 x 58 = 181.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringwright.workloads.expected.row import DTYPE_BYTES, ExpectedRow, gathered, whole


def rows(dims: Mapping[str, int], ranks: int, batch: int, sequence: int, dtype: str) -> list[ExpectedRow]:
    """Return what one rank issues for a prompt of ``sequence`` tokens, and for each decoded token."""
    if ranks == 1:
        return []
    width, layers, dense = DTYPE_BYTES[dtype], dims["layers"], dims["dense_layers"]
    sums = 1 + layers + dense + 2 * (layers - dense)
    expected = []
    for when, tokens in (("prefill", batch * sequence), ("decode", batch)):
        expected.append(whole(when, when, "tp", "all-reduce", tokens * dims["hidden"] * width, sums))
        expected.append(gathered(when, when, "tp", batch * dims["vocabulary"] * width, ranks))
    return expected
