"""Kineto traces have trace events, and what PyTorch says of devices and ranks."""

from __future__ import annotations

from ringwright.formats.sources.kinds import KEYS, NO, has, of_others

WHAT = "PyTorch profiler (Kineto) trace"
RANK = 50
READER = "ringwright.formats.sources.kineto:read_kineto"
PARSER = "ringwright.formats.sources.kineto.event_batches:gather"


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    text = of_others(head)
    is_trace = has(text, "traceEvents") or has(text, "deviceProperties") or has(text, "distributedInfo")
    return KEYS if is_trace or has(text, "ph", "ts") else NO
