"""GradientFlow: one pool of gradients in half precision, sent in runs of at least a threshold, or only its large chunks.

Idea: Gradients lie in one buffer in the order of backward, so what is finished and unsent is one range; it is all-reduced
    when it holds ``theta`` bytes (lazy all-reduce). Coarse-grained sparsity sends the chunks of the largest norms, which an
    all-reduce of the norms makes the same on all ranks.
Cost: ceil(n b / theta) latencies + the volume; sparse: AR(4 n / chunk) + AR(share n b).
Knobs: ``theta_mb`` (MiB; none: the best of the powers of two by the cost model), ``element_bytes`` (2), ``share`` (1: all),
    ``chunk_elements`` (32,768, unconfirmed).
Holds: The same cut points and chunks on all ranks; share 1 is the dense sum; theta 0 is one all-reduce a tensor.
Figure: AlexNet on 512 GPUs: speed-up 410.2 at 56 Gb/s; common systems 2.5 on 64.
Source: Sun et al., IEEE Transactions on Big Data, arXiv 1902.06855.
Declines: nothing.
"""

from __future__ import annotations

from typing import Annotated

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Elements, Mebibytes, Range
from ringwright.model.stages import Costs
from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright.schedulers.fifo._best import best_threshold
from ringwright.schedulers.order import GRADIENTS

NEEDS = ("workload.gradients",)


def gradientflow(
    workload: Workload,
    costs: Costs,
    *,
    theta_mb: Mebibytes | None = None,
    element_bytes: Annotated[int, Range(1, 8)] = 2,
    share: Annotated[float, Range(1e-6, 1)] = 1.0,
    chunk_elements: Elements = 32 * 1024,
) -> Workload:
    """Return the workload with its gradients in one pool, first come first served, and a barrier."""
    if not 0 < share <= 1:
        raise UsageError(f"gradientflow cannot send a share of {share:g}", remedy="share=0.1, or 1 for all")
    narrow = Rewrite("width", GRADIENTS, {"element_bytes": element_bytes})
    sparse = Rewrite("select", GRADIENTS, {"share": share, "chunk_elements": chunk_elements})
    before = workload.with_policy(
        "gradientflow", rewrites=(narrow,), queue=Queue(), boundary="barrier", agreement="static"
    )
    theta = best_threshold(before, costs) if theta_mb is None else round(theta_mb * (1 << 20))
    lazy = Rewrite("threshold", GRADIENTS, {"size_bytes": theta})
    return before.with_policy("gradientflow", rewrites=(narrow, lazy) if share == 1 else (narrow, lazy, sparse))
