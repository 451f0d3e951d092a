"""How NCCL's algorithms and protocols are spelled, wherever they are typed, set or printed: read here, and nowhere else.

NCCL writes ``NVLSTree`` and ``CollNetDirect`` in lists of its environment and in logs, ``NVLS_TREE`` in kernels, profilers and
its enumerations, its guide ``CollnetDirect``; people type dashes. Sources: NVIDIA/nccl, ``src/graph/tuning.cc`` and
``src/include/nccl_tuner.h``; NCCL user guide, ``NCCL_ALGO`` and ``NCCL_PROTO``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ringwright.costs.nccl.constants import ALGORITHMS, PROTOCOLS, release_numbers

_BETWEEN = re.compile(r"[\s_-]+")
_ALGORITHM, _PROTOCOL = re.compile(r"^nccl(?:algo)?(?=[a-z])"), re.compile(r"^nccl(?:proto)?(?=[a-z])")
_ALGORITHM_OF = {each.replace("_", ""): each for each in ALGORITHMS} | {
    "collnet": "collnet_direct"
}  # its name before 2.14


def algorithm_named(word: str) -> str | None:
    """Return the algorithm that a word means, as ``ALGORITHMS`` has it; None for a word that is none of NCCL's."""
    return _ALGORITHM_OF.get(_ALGORITHM.sub("", _folded(word)))


def protocol_named(word: str) -> str | None:
    """Return the protocol that a word means, as ``PROTOCOLS`` has it; None for a word that is none of NCCL's."""
    folded = _PROTOCOL.sub("", _folded(word))
    return folded if folded in PROTOCOLS else None


def _folded(word: str) -> str:
    return _BETWEEN.sub("", word.strip().lower())


@lru_cache(1 << 10)
def printed_algorithm(word: str) -> str:
    """Return the word for an algorithm in the tables of a Trace, from one that is printed: ``NVLS_TREE`` -> ``nvls-tree``.

    A word that is none of NCCL's is kept, in small letters.
    """
    named = algorithm_named(word)
    return named.replace("_", "-") if named else word.strip().lower()


@lru_cache(1 << 10)
def printed_protocol(word: str) -> str:
    """Return the word for a protocol in the tables of a Trace, from one that is printed."""
    return protocol_named(word) or word.strip().lower()


def spelled(algorithm: str, release: str) -> str:
    """Return an algorithm as the release's ``NCCL_ALGO`` has it: one word, and CollNet without its kind before 2.14."""
    if algorithm == "collnet_direct" and release_numbers(release)[:2] < (2, 14):
        return "collnet"
    return algorithm.replace("_", "")
