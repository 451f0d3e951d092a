"""Tuner rules for the tuner inside NCCLX (torchcomms): the JSON that ``NCCLX_TUNER_CONFIG_FILE`` names.

A rule has a ``filter``, which calls it holds for, and a ``config``, what they take; what is left out is any, or NCCL's own. The
first rule that holds decides. A file with one bad rule stops the communicator from being made, and NCCLX built without its JSON
library refuses every ``.json``. Source: meta-pytorch/torchcomms ``comms/ncclx/meta/tuner`` (pull requests 2911 and 3057).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ringwright.costs.nccl.per_rank import EVERY, PerRankRule, WholeRange
from ringwright.costs.nccl.tuner import ANY
from ringwright.formats.exports.nccl_tuner_csv import COLLECTIVES


def torchcomms_tuner(rules: Iterable[PerRankRule]) -> bytes:
    """Return the file's bytes: one rule a line, in the order in which they are asked."""
    lines = ",\n".join(f"  {json.dumps(_rule(rule))}" for rule in rules)
    return f'{{\n "rules": [\n{lines}\n ]\n}}\n'.encode("ascii")


def _rule(rule: PerRankRule) -> dict[str, dict[str, str | int]]:
    asked: dict[str, str | int] = {"collective": COLLECTIVES[rule.op]}
    for name, numbers in (
        ("bytesPerRank", rule.bytes_per_rank),
        ("nNodes", rule.nodes),
        ("nLocalRanks", rule.local_ranks),
    ):
        if numbers != EVERY:
            asked[name] = _range(numbers)
    taken: dict[str, str | int] = {"algorithm": rule.algorithm, "protocol": rule.protocol}
    if rule.channels != ANY:
        taken["channels"] = rule.channels
    if rule.chunk_bytes:
        taken["chunkSize"] = rule.chunk_bytes
    return {"filter": asked, "config": taken}


def _range(numbers: WholeRange) -> str | int:
    """Return a range as the interval that NCCLX reads; one number as itself."""
    if numbers.low is not None and numbers.low == numbers.high:
        return numbers.low
    left = "(" if numbers.low is None else f"[{numbers.low}"
    right = ")" if numbers.high is None else f"{numbers.high}]"
    return f"{left},{right}"
