"""Element types in NCCL's spelling, from the spellings of PyTorch, PARAM, nccl-tests and CUDA."""

from __future__ import annotations

import re

# name -> bytes of an element
BYTES = {
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "float8e4m3": 1,
    "float8e5m2": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
_SPELLINGS = {
    "char": "int8",
    "signedchar": "int8",
    "byte": "uint8",
    "unsignedchar": "uint8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "longint": "int64",
    "longlong": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "fp8e4m3": "float8e4m3",
    "f8e4m3": "float8e4m3",
    "fp8e5m2": "float8e5m2",
    "f8e5m2": "float8e5m2",
    "bf16": "bfloat16",
    "float8e4m3fn": "float8e4m3",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "u8": "uint8",
    "i8": "int8",
    "complexfloat": "complex64",
    "complexdouble": "complex128",
    "unsignedint": "uint32",
    "unsignedlong": "uint64",
}
_NOISE = re.compile(r"^(?:torch\.|c10::|tensor\(|genericlist\[|nccl)+|[\s_)\]]+|c10::")


def datatype(spelled: str) -> str | None:
    """Return NCCL's name of an element type: ``Tensor(c10::BFloat16)`` -> bfloat16; None where it is not known."""
    key = _NOISE.sub("", spelled.strip().lower()).split(",")[0]
    key = _SPELLINGS.get(key, key)
    return key if key in BYTES else None


def element_bytes(spelled: str) -> int | None:
    """Return the bytes of an element of a type in any spelling, None where it is not known."""
    name = datatype(spelled)
    return BYTES[name] if name else None
