"""Spellings of operations and element types in profiler traces and kernel names, to the project's own."""

from __future__ import annotations

import re

from ringwright.model.collective import DTYPE_BYTES

NO_OPERATION = (
    "wait",
    "init",
    "end_coalescing",
    "start_coalescing",
    "end_time_estimate",
    "start_time_estimate",
    "coalesced",
)
_TYPES = {
    "float": "float32",
    "f32": "float32",
    "float32": "float32",
    "single": "float32",
    "half": "float16",
    "f16": "float16",
    "float16": "float16",
    "fp16": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "double": "float64",
    "f64": "float64",
    "float64": "float64",
    "char": "int8",
    "int8": "int8",
    "int8_t": "int8",
    "i8": "int8",
    "byte": "uint8",
    "uint8": "uint8",
    "uint8_t": "uint8",
    "u8": "uint8",
    "bool": "uint8",
    "int": "int32",
    "int32": "int32",
    "int32_t": "int32",
    "i32": "int32",
    "uint32": "uint32",
    "uint32_t": "uint32",
    "u32": "uint32",
    "long": "int64",
    "int64": "int64",
    "int64_t": "int64",
    "i64": "int64",
    "uint64": "uint64",
    "uint64_t": "uint64",
    "u64": "uint64",
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
    "float8_e4m3fnuz": "float8",
    "float8_e5m2fnuz": "float8",
    "f8e4m3": "float8",
    "f8e5m2": "float8",
    "fp8_e4m3": "float8",
    "fp8_e5m2": "float8",
    "float8": "float8",
    "complexfloat": "complex64",
    "complexdouble": "complex128",
    "short": "int16",
    "int16": "int16",
    "uint16": "uint16",
}
_BYTES = {**DTYPE_BYTES, "complex64": 8, "complex128": 16, "int16": 2, "uint16": 2}
# the longest spelling that fits decides; what stands between is left out first
_OPERATIONS = (
    ("reducescatter", "reduce-scatter"),
    ("allreduce", "all-reduce"),
    ("allgather", "all-gather"),
    ("fcollect", "all-gather"),
    ("alltoall", "all-to-all"),
    ("all2all", "all-to-all"),
    ("a2a", "all-to-all"),
    ("sendrecv", "send-recv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("syncall", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("receive", "recv"),
    ("recv", "recv"),
    ("send", "send"),
)


def operation(said: object) -> str | None:
    """Return our name of an operation, or None: ``_allgather_base``, ``nccl:all_reduce``, ``AllReduce``, ``all_to_allv``.

    >>> operation("c10d::_reduce_scatter_base_"), operation("wait"), operation("nccl:recv 3<-1")
    ('reduce-scatter', None, 'recv')
    """
    if not isinstance(said, str) or len(said) > 200:
        return None
    short = said.split(":")[-1].strip().split(" ", 1)[0].lower()
    if short.strip("_") in NO_OPERATION:
        return None
    letters = re.sub(r"[^a-z0-9]", "", short)
    return next((op for spelling, op in _OPERATIONS if spelling in letters), None)


def datatype(said: object) -> str | None:
    """Return our name of an element type, or None: ``BFloat16``, ``c10::BFloat16``, ``torch.bfloat16``, ``bf16``."""
    if not isinstance(said, str) or len(said) > 60:
        return None
    short = said.replace("torch.", "").split("::")[-1].strip().lower().lstrip("_")
    return _TYPES.get(short)


def element_bytes(name: str | None) -> int | None:
    """Return the bytes of one element of a type of ours."""
    return _BYTES.get(name) if name else None
