"""Element types in NCCL's spelling, from the spellings of PyTorch, C, PARAM, nccl-tests, XLA and CUDA: the only table of them."""

from __future__ import annotations

import re

# name -> bytes of an element
BYTES = {
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "float8": 1,
    "float8e4m3": 1,
    "float8e5m2": 1,
    "bool": 1,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
}
_SPELLINGS = {
    "char": "int8",
    "byte": "uint8",
    "unsignedchar": "uint8",
    "short": "int16",
    "unsignedshort": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsignedint": "uint32",
    "long": "int64",
    "longlong": "int64",
    "unsignedlong": "uint64",
    "unsignedlonglong": "uint64",
    "half": "float16",
    "float": "float32",
    "single": "float32",
    "double": "float64",
    "bf16": "bfloat16",
    "nvbfloat16": "bfloat16",
    "complexhalf": "complex32",
    "complexfloat": "complex64",
    "complexdouble": "complex128",
}
_NOISE = re.compile(r"^(?:torch\.|c10::|tensor\(|genericlist\[|nccl)+|[\s_)\]<>]+|c10::")
# in turn: what a spelling adds that means nothing, and short forms
_RULES = (
    (re.compile(r"(?<=short)int$|(?<=long)int$|^signed(?=.)|(?<=\d)t$"), ""),
    (re.compile(r"^(?:float|fp|f)8(e4m3|e5m2)(?:fn)?(?:uz)?$"), r"float8\1"),
    (re.compile(r"^[is](?=\d+$)"), "int"),
    (re.compile(r"^u(?=\d+$)"), "uint"),
    (re.compile(r"^fp?(?=\d+$)"), "float"),
)
_LONGEST = 200


def datatype(spelled: object) -> str | None:
    """Return NCCL's name of an element type: ``Tensor(c10::BFloat16)`` -> bfloat16; None where it is not known.

    >>> [datatype(said) for said in ("long int", "signed char", "u32", "torch.float8_e4m3fn", "Scalar")]
    ['int64', 'int8', 'uint32', 'float8e4m3', None]
    """
    if not isinstance(spelled, str) or len(spelled) > _LONGEST:
        return None
    key = _NOISE.sub("", spelled.strip().lower()).split(",")[0]
    for pattern, plain in _RULES:
        key = pattern.sub(plain, key)
    key = _SPELLINGS.get(key, key)
    return key if key in BYTES else None


def element_bytes(spelled: object) -> int | None:
    """Return the bytes of an element of a type in any spelling, None where it is not known."""
    name = datatype(spelled)
    return BYTES[name] if name else None
