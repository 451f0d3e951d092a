"""PyTorch execution traces are JSON with a schema and nodes; Chakra's, which are asked first, have other keys besides."""

from __future__ import annotations

from ringwright.formats.sources.kinds import KEYS, NO, has, of_others

WHAT = "PyTorch execution trace"
RANK = 90
READER = "ringwright.formats.sources.pytorch_et:read_pytorch_et"
PARSER = "ringwright.formats.sources.pytorch_et.reader:read_source"


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    text = of_others(head)
    return KEYS if has(text, "schema", "nodes") or (has(text, "nodes") and b"record_param_comms" in text) else NO
