"""Buckets of gradients, as PyTorch's DistributedDataParallel is told of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from ringwright.ground.errors import UsageError


@dataclass(frozen=True)
class BucketPlan:
    """Where each bucket is full, in MiB, in the order in which gradients are made; ``buckets`` names them, where it can."""

    bucket_cap_mib: tuple[float, ...]
    buckets: tuple[tuple[str, ...], ...] = ()
    policy: str = "none"

    def __post_init__(self) -> None:
        if not self.bucket_cap_mib or any(not isfinite(cap) or cap <= 0 for cap in self.bucket_cap_mib):
            raise UsageError("a bucket without a size", remedy="one size above 0 for each bucket, in MiB")
        if self.buckets and len(self.buckets) != len(self.bucket_cap_mib):
            raise UsageError(
                f"{len(self.bucket_cap_mib)} sizes for {len(self.buckets)} buckets", remedy="one size for each bucket"
            )
