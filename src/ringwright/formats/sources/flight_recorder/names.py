"""What the names in a dump mean: operations, datatypes, roles of process groups, ranks in file names.

Names as PyTorch writes them (``ProcessGroupNCCL`` and its flight recorder, versions 2.4 to 2.9 of the dump).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ringwright.formats.sources.datatypes import BYTES
from ringwright.formats.sources.datatypes import datatype as element_type
from ringwright.formats.sources.ranks import rank_by_pattern


class NamedOperation(NamedTuple):
    """``kind`` of event, ``op``, and for p2p this rank and its peer, both as ranks of the group."""

    kind: str
    op: str
    own: int | None = None
    peer: int | None = None
    is_coalesced: bool = False  # a marker around operations that are recorded one by one too


_PREFIXES = (
    ("allreduce", "all-reduce"),
    ("allgather", "all-gather"),
    ("reducescatter", "reduce-scatter"),
    ("alltoall", "all-to-all"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("barrier", "barrier"),
)
_SEND = re.compile(r"send\s+(\d{1,9})\s*->\s*(\d{1,9})")
_RECV = re.compile(r"recv\s+(\d{1,9})\s*<-\s*(\d{1,9})")

# Words of a description, in the order in which a role of several words is written.
_ROLE_WORDS = (
    ("ep", ("EXPERT_MODEL_PARALLEL", "EXPERT_PARALLEL", "_EP")),
    ("tp", ("TENSOR_MODEL_PARALLEL", "TENSOR_PARALLEL", "TENSOR", "_TP")),
    ("cp", ("CONTEXT_PARALLEL", "CONTEXT", "_CP")),
    ("pp", ("PIPELINE_MODEL_PARALLEL", "PIPELINE_PARALLEL", "PIPELINE", "_PP")),
    ("dp", ("DATA_PARALLEL", "DATA", "_DP", "FSDP", "DP_SHARD", "DP_REPLICATE")),
)
_RANK_IN_NAME = re.compile(r"rank[_\-.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_DIGITS = re.compile(r"(\d{1,7})\D*$")
_SUFFIX = re.compile(r"\.(?:pkl|pickle|json|jsonl|gz|zst|zstd|pt|bin|txt|dump|trace|fr)$", re.IGNORECASE)


@lru_cache(4096)
def operation(name: str) -> NamedOperation:
    """Return what a ``profiling_name`` such as ``nccl:_all_gather_base`` or ``nccl:recv 0<-1`` says."""
    text = name.rpartition(":")[2].strip()
    if match := _SEND.fullmatch(text):
        return NamedOperation("p2p", "send", int(match[1]), int(match[2]))
    if match := _RECV.fullmatch(text):
        return NamedOperation("p2p", "recv", int(match[1]), int(match[2]))
    plain = text.lower().replace("_", "").replace(" ", "")
    if plain in ("send", "recv"):
        return NamedOperation("p2p", plain)
    if plain == "coalesced":
        return NamedOperation("p2p", "send-recv", is_coalesced=True)
    coalesced = text.endswith("_coalesced") and text.split("_", 1)[0].isupper()
    for prefix, op in _PREFIXES:
        if plain.startswith(prefix):
            canonical = "barrier" if plain.endswith("barrier") else op
            return NamedOperation("collective", canonical, is_coalesced=coalesced)
    return NamedOperation("collective", "unknown")


@lru_cache(4096)
def datatype(name: str) -> tuple[str, int | None]:
    """Return NCCL's spelling and the bytes of an element for a c10 or torch spelling; 4 bits and unknown types have none."""
    text = name.rpartition("::")[2].rpartition(".")[2].strip()
    known = element_type(text)
    return (known, BYTES[known]) if known else (text or "unknown", None)


@lru_cache(4096)
def role(description: str) -> str | None:
    """Return the role that a group's description states, such as ``tp``, ``tp-cp`` or ``world``, else None.

    Expert variants of the tensor and data groups get an ``e`` in front (``etp``, ``edp``).
    """
    text = description.upper().replace("-", "_").replace(" ", "_")
    if text in ("DEFAULT_PG", "DEFAULT", "WORLD"):
        return "world"
    if "EMBEDDING" in text:
        return "embedding"
    with_cp = text.endswith("_WITH_CP")
    text = "_" + text.removeprefix("MESH_").removesuffix("_WITH_CP")
    text = text.replace("TENSOR_AND_CONTEXT", "TENSOR_CONTEXT")
    roles = []
    if "EXPERT" in text:
        roles = _expert_roles(text)
    else:
        roles = [name for name, words in _ROLE_WORDS if any(word in text for word in words)]
    if with_cp and "dp" in roles:
        roles = [name for name in roles if name != "cp"] + ["cp"]
    if not roles and "MODEL_PARALLEL" in text:
        return "mp"
    return "-".join(roles) or None


def _expert_roles(text: str) -> list[str]:
    roles = []
    if "EXPERT_MODEL" in text or "AND_MODEL" in text or "EXPERT_PARALLEL" in text:
        roles.append("ep")
    if "TENSOR" in text:
        roles.append("etp")
        if "MODEL_PIPELINE" in text:
            roles.append("ep")
    if "PIPELINE" in text:
        roles.append("pp")
    if "DATA" in text:
        roles.append("edp")
    return roles


def rank_in_name(name: str) -> int | None:
    """Return the rank in a file name: by the pattern given, or ``nccl_trace_rank_3``, ``_dump_3.json``, any last digits."""
    if (told := rank_by_pattern(name)) is not None:
        return told
    stem = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    while (shorter := _SUFFIX.sub("", stem)) != stem:
        stem = shorter
    marked = _RANK_IN_NAME.findall(stem)
    if marked:
        return int(marked[-1])
    match = _LAST_DIGITS.search(stem)
    return int(match[1]) if match else None
