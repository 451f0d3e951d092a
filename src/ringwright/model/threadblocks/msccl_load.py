"""Which MSCCL file is for calls of which size: a row of the configuration that Microsoft's runtime reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MscclLoad:
    """One file, and the sizes of calls in bytes that it is for: from ``low`` up to ``high`` (0: all that is larger)."""

    path: str
    low: int
    high: int
    protocol: str
