"""What the training thread is doing now, for whoever watches from outside: two words that cost nothing to set.

``NOW`` is read by tests and recorders; nothing in the rank programs depends on who reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Label:
    """``iteration`` is -1 before the first one; ``phase`` is setup, forward, backward, optimiser, prefill or decode."""

    iteration: int = -1
    phase: str = "setup"


NOW = Label()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Have ``NOW`` say ``name`` inside the block."""
    before, NOW.phase = NOW.phase, name
    try:
        yield
    finally:
        NOW.phase = before
