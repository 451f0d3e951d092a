"""A policy inside DistributedDataParallel, as a communication hook: each bucket in pieces, first come first served.

The reducer waits for every bucket at the end of backward, so only a policy with that barrier is correct here.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites.kind import carried_by
from ringwright.model.workload import Workload


class Hooked:
    """State of the hook: the size of pieces, and what was sent: (bucket, bytes of each piece)."""

    def __init__(self, group: Any, piece_bytes: int) -> None:
        self.group, self.piece_bytes = group, piece_bytes
        self.sent: list[tuple[int, list[int]]] = []


def state(workload: Workload, group: Any = None) -> Hooked:
    """Return the hook's state for a policy; UsageError, with the reason, where a hook would be wrong or useless."""
    policy, queue = workload.policy, workload.policy.queue
    if policy.boundary == "layer":
        raise UsageError(
            "a hook may not finish after backward(): the reducer copies what is in the bucket then, old or new",
            where=f"boundary by {policy.by.get('boundary', 'nobody')}",
            remedy="ringwright_lab.live.on_ranks",
        )
    if queue is not None and (queue.keys or queue.random is not None):
        raise UsageError(
            "a hook is called bucket by bucket, in the order of backward; urgencies change nothing",
            where=f"queue by {policy.by.get('queue', 'nobody')}",
            remedy="ringwright_lab.live.on_ranks",
        )
    strange = {rewrite.kind for rewrite in policy.rewrites or ()} - set(carried_by("hook"))
    if strange:
        raise UsageError(f"a hook does not carry out rewrite '{min(strange)}'", remedy="partition and fusion only")
    cuts = [rewrite.settings for rewrite in policy.rewrites or () if rewrite.kind == "partition"]
    if cuts and "size_bytes" not in cuts[-1]:
        raise UsageError("pieces of a bucket are given in bytes", remedy="a partition with size_bytes")
    return Hooked(group, int(cuts[-1]["size_bytes"]) if cuts else 0)


def hook(state: Hooked, bucket: dist.GradBucket) -> torch.futures.Future[Any]:
    """Sum a bucket's mean over the ranks, piece by piece; for ``register_comm_hook(state(...), hook)``."""
    buffer = bucket.buffer()
    buffer.div_(dist.get_world_size(state.group))
    elements = max(state.piece_bytes // buffer.element_size(), 1) if state.piece_bytes else buffer.numel()
    pieces = buffer.split(elements)
    state.sent.append((bucket.index(), [piece.numel() * piece.element_size() for piece in pieces]))
    works = [dist.all_reduce(piece, group=state.group, async_op=True) for piece in pieces]
    gathered = torch.futures.collect_all([work.get_future() for work in works])
    return gathered.then(lambda _: buffer)


# DistributedDataParallel compares these with the types themselves; here they are words.
hook.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})
