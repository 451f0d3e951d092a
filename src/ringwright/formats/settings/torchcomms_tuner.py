"""Tuner rules for the tuner inside NCCLX (torchcomms): the JSON that ``NCCLX_TUNER_CONFIG_FILE`` names.

A rule has a ``filter``, which calls it holds for, and a ``config``, what they take; what is left out is any, or NCCL's own.
The first rule that holds decides. A file with one bad rule stops the communicator from being made, and NCCLX built without
its JSON library refuses every ``.json``. Source: meta-pytorch/torchcomms ``comms/ncclx/meta/tuner`` (pull requests 2911 and
3057).

Read back as strictly as it is there: one bad rule refuses the file. A range is a number, ``*``, or an interval such as
``[0,1048576]``, ``(1,)``; round brackets leave their end out. Builds of 2026 before the CSV lost these columns also ask for
``numPipeOps`` and ``regBuff``, later ones pass over them: a rule with one of them is refused, for the two would not agree on
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from ringwright.costs.nccl.constants import ALGORITHMS, PROTOCOLS
from ringwright.costs.nccl.per_rank import EVERY, PerRankRule, WholeRange
from ringwright.costs.nccl.tuner import ANY, BYTES_MAX
from ringwright.formats.settings.nccl_tuner_csv import COLLECTIVES, OPS
from ringwright.formats.sources.gate.small_file import read_whole
from ringwright.ground.errors import InputError, UsageError


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


# read back


_REMEDY = "compare with what ringwright.formats.settings.torchcomms_tuner writes"
_INTERVAL = re.compile(r"([\[(])\s*(-?\d{1,19})?\s*,\s*(-?\d{1,19})?\s*([\])])", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)
_FILTER = ("collective", "bytesPerRank", "nNodes", "nLocalRanks")
_CONFIG = ("algorithm", "protocol", "channels", "chunkSize")
_EARLIER = ("numPipeOps", "regBuff")


def read_torchcomms_tuner(path: Path | str) -> tuple[PerRankRule, ...]:
    """Return the rules of a file in their order; InputError names the rule that is wrong."""
    path = Path(path)
    return parse_torchcomms_tuner(read_whole(path, "the tuner file", _REMEDY), str(path))


def parse_torchcomms_tuner(text: str, where: str = "tuner.json") -> tuple[PerRankRule, ...]:
    """Return the rules of a file's text; ``where`` names it in errors."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        _fail(f"not JSON: {error.msg}", f"{where}:{error.lineno}")
    except (RecursionError, ValueError):
        _fail("not JSON: nested too deeply, or a number of too many digits", where)
    rules = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(rules, list):
        _fail("an object with a list 'rules' should stand here", where)
    return tuple(_read_rule(rule, f"{where}: rule {at}") for at, rule in enumerate(rules, 1))


def _read_rule(rule: object, where: str) -> PerRankRule:
    asked, taken = (rule.get(name) if isinstance(rule, dict) else None for name in ("filter", "config"))
    if not isinstance(asked, dict) or not isinstance(taken, dict):
        _fail("a rule has two objects, 'filter' and 'config'", where)
    for name in _EARLIER:
        if asked.get(name, ANY) != ANY:
            _fail(f"'{name}' is asked for by earlier builds only", where)
    strange = [*(set(asked) - {*_FILTER, *_EARLIER}), *(set(taken) - set(_CONFIG))]
    if strange:
        _fail(f"'{min(strange)[:40]}' is no field of a rule: NCCLX would pass over it", where)
    words = (
        (asked, "collective", OPS),
        (taken, "algorithm", {word: word for word in ALGORITHMS}),
        (taken, "protocol", {word: word for word in PROTOCOLS}),
    )
    op, algorithm, protocol = (_word(fields, name, known, where) for fields, name, known in words)
    sizes, nodes, local = (_read_range(asked.get(name, "*"), name, where) for name in _FILTER[1:])
    channels, chunk = _whole(taken, "channels", ANY, where), _whole(taken, "chunkSize", 0, where)
    try:
        return PerRankRule(op, algorithm, protocol, sizes, nodes, local, channels, chunk)
    except UsageError as error:
        _fail(error.what, where)


def _word(fields: Mapping[str, object], name: str, known: Mapping[str, str], where: str) -> str:
    word = fields.get(name)
    if not isinstance(word, str) or word not in known:
        _fail(f"{name} {str(word)[:40]!r} is none of {', '.join(known)}", where)
    return known[word]


def _whole(fields: Mapping[str, object], name: str, usual: int, where: str) -> int:
    number = fields.get(name, usual)
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > BYTES_MAX:
        _fail(f"{name} {str(number)[:40]!r} is no whole number", where)
    return number


def _read_range(said: object, name: str, where: str) -> WholeRange:
    if isinstance(said, int) and not isinstance(said, bool) and abs(said) <= BYTES_MAX:
        return WholeRange(said, said)
    text = said.strip() if isinstance(said, str) else ""
    if text == "*":
        return EVERY
    if _NUMBER.fullmatch(text):
        return WholeRange(int(text), int(text))
    interval = _INTERVAL.fullmatch(text)
    if interval is None:
        _fail(f"{name} {str(said)[:40]!r} is no number, interval or *", where)
    left, low, high, right = interval.groups()
    try:
        return WholeRange(
            None if low is None else int(low) + (left == "("), None if high is None else int(high) - (right == ")")
        )
    except UsageError:
        _fail(f"{name} '{text[:40]}' holds no number", where)


def _fail(what: str, where: str) -> NoReturn:
    raise InputError(f"bad tuner file: {what}", where=where, remedy=_REMEDY)
