"""Chakra execution traces: messages of protobuf, each behind its length, or their twin in JSON."""

from __future__ import annotations

from ringwright.formats.sources.kinds import KEYS, NO, document, has, of_others

WHAT = "Chakra execution trace"
RANK = 80
READER = "ringwright.formats.sources.chakra_et:read_chakra_et"
PARSER = "ringwright.formats.sources.chakra_et.file:read_source"
_STARTS = (b"\x0a", b"\x12", b"\x08")  # how GlobalMetadata and Node begin


def looks_like(head: bytes, name: str) -> int:
    """Return how sure we are."""
    if document(head):
        text = of_others(head)
        return KEYS if has(text, "workload_graph") or has(text, "NodeType", "ctrlDeps") else NO
    return KEYS if _is_message(head) or (name.endswith(".et") and b"\x00" in head) else NO


def _is_message(head: bytes) -> bool:
    """Whether the file begins with a length and a message of that length that starts as GlobalMetadata or Node does."""
    size, at, shift = 0, 0, 0
    while at < min(4, len(head)):
        size |= (head[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not head[at - 1] & 0x80:
            break
    else:
        return False
    starts = head[at : at + 1] in _STARTS
    return 1 < size < 1 << 20 and starts and b"\x00" in head[:4096] and not head[:1].isspace()
