"""The algebra: rules that rewrite a Workload's graph and change nothing of what it computes.

``RULES`` holds them by name, each a function ``(workload, at, **knobs) -> Workload`` that applies or raises ``RewriteError``;
``replayed`` applies a list of them again, ``equality.prove`` carries both graphs out on small numbers and compares every output.

Examples
--------
>>> import ringwright
>>> from ringwright.graph.algebra import RULES
>>> from ringwright.workloads.chain import ChainLayer, chain
>>> step = chain("toy", [ChainLayer(1, 2, 4096)], ranks=4)
>>> split = RULES["split-all-reduce"](step, "layer0")
>>> [payload.op for payload in split.payloads], [each.rule for each in split.applied]
(['reduce-scatter', 'all-gather'], ['split-all-reduce'])
"""

from ringwright.graph.algebra import (
    axes,
    batches,
    commute,
    cut,
    fuse,
    halves,
    levels,
    loop,
    micro_batch_sums,
    networks,
    order,
    recompute,
    reorder,
    reuse,
    rings,
    shift,
    slots,
    split_collective,
    unfuse,
)
from ringwright.graph.algebra.rule import RULES, RewriteError, RewriteRule, replayed, rewritten

FAMILIES = (
    axes,
    split_collective,
    levels,
    rings,
    cut,
    commute,
    reorder,
    fuse,
    unfuse,
    loop,
    shift,
    batches,
    recompute,
    networks,
    reuse,
    order,
    slots,
    micro_batch_sums,
    halves,
)

__all__ = ["FAMILIES", "RULES", "RewriteError", "RewriteRule", "replayed", "rewritten"]
