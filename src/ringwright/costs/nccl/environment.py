"""What environment variables tell NCCL to take: lists of algorithms and protocols, for all collectives or for single ones.

A release takes what it knows: names of algorithms come and go with it, and lists for single collectives begin with 2.24. A list
that names LL128 switches it on where NCCL keeps it off as unsafe; a list of everything is therefore not the same as none. Source:
NCCL user guide, ``NCCL_ALGO``; NVIDIA/nccl ``src/graph/tuning.cc``; vllm-project/vllm 58179 for 2.31.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ringwright.costs.nccl.availability import not_offered
from ringwright.costs.nccl.constants import ALGORITHMS, OPS, PROTOCOLS, constants, release_numbers
from ringwright.ground.errors import UsageError

EVERY_OP = ""
PER_OP_FROM = (2, 24)
VARIABLE = re.compile(r"(NCCL|NCCLX|RCCL)_[A-Z0-9_]{1,80}")
Lists = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class NcclEnvironment:
    """Lists by operation (``EVERY_OP``: all that are not named), ranges of channels, and other variables, for one release.

    A list for all in one variable beside lists for single operations in the other is refused: from 2.31 on, what the first one
    forces finds nothing in the second.
    """

    release: str
    algorithms: Lists = field(default_factory=dict)
    protocols: Lists = field(default_factory=dict)
    min_channels: int | None = None
    max_channels: int | None = None
    buffer_bytes: int | None = None
    others: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = algorithms_of(self.release)
        for name, every in (("algorithms", known), ("protocols", PROTOCOLS)):
            self._check(getattr(self, name), every)
        if self.algorithms and self.protocols and (EVERY_OP in self.algorithms) != (EVERY_OP in self.protocols):
            raise UsageError(
                "one variable has a list for all collectives, the other has none",
                remedy="a list for all in both, or in none",
            )
        for op in sorted({*self.algorithms, *self.protocols} - {EVERY_OP}):
            self._check_pairs(op)
        self._check_numbers()
        if self.algorithms or self.protocols:
            tuner = next((each for each in self.others if "_TUNER_" in each), None)
            if tuner:
                raise UsageError(
                    f"NCCL asks no tuner for what lists decide: {tuner} would do nothing", remedy="a tuner, or lists"
                )

    def of(self, op: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the algorithms and the protocols that an operation may take."""
        algorithms = self.algorithms.get(op) or self.algorithms.get(EVERY_OP) or algorithms_of(self.release)
        return algorithms, self.protocols.get(op) or self.protocols.get(EVERY_OP) or PROTOCOLS

    def _check(self, lists: Lists, every: tuple[str, ...]) -> None:
        for op, words in lists.items():
            strange = [word for word in words if word not in every]
            if op not in (*OPS, EVERY_OP) or strange or not words or len(set(words)) < len(words):
                raise UsageError(
                    f"NCCL {self.release} takes no list {', '.join(words) or 'of nothing'} for {op or 'all'}",
                    remedy=f"each once of: {', '.join(every)}",
                )
        if set(lists) - {EVERY_OP} and release_numbers(self.release)[:2] < PER_OP_FROM:
            raise UsageError(
                f"NCCL {self.release} takes one list for all collectives", remedy="2.24 or later, or the tuner's table"
            )

    def _check_pairs(self, op: str) -> None:
        algorithms, protocols = self.of(op)
        held = constants(self.release)
        why = [not_offered(held, op, algorithm, each) for algorithm in algorithms for each in protocols]
        if all(why):
            raise UsageError(f"nothing is left for {op}: {why[0]}", remedy="add ring, or another protocol")

    def _check_numbers(self) -> None:
        low, high, size = self.min_channels, self.max_channels, self.buffer_bytes
        most = constants(self.release).rules.max_channels
        if any(each is not None and not 1 <= each <= most for each in (low, high)) or (low or 1) > (high or most):
            raise UsageError(f"{low} to {high} channels", remedy=f"1 to {most}, the first no more than the second")
        if size is not None and size < 1:
            raise UsageError(f"a buffer of {size} B", remedy="1 byte or more")
        for name, value in self.others.items():
            if not VARIABLE.fullmatch(name) or name in OWN or not value.isascii() or not value.isprintable():
                raise UsageError(
                    f"'{name[:60]}' cannot be set here", remedy="NCCL_..., RCCL_... or NCCLX_... in one line of ASCII"
                )


OWN = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_BUFFSIZE",
    *(f"NCCL_{end}_{what}" for end in ("MIN", "MAX") for what in ("CTAS", "NCHANNELS")),
)


def algorithms_of(release: str) -> tuple[str, ...]:
    """Return the algorithms of a release; UsageError for one that is not known."""
    held = constants(release).base_latency_us
    return tuple(each for each in ALGORITHMS if each in held)


def lists_of(value: str, named: Callable[[str], str | None], every: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the lists of a value of ``NCCL_ALGO`` or ``NCCL_PROTO`` by operation.

    Such as ``ring,tree``, ``^nvls`` or ``allreduce:tree;allgather:ring``. ``named`` knows the words and ``every`` what there is;
    UsageError for a word or a collective that is none.
    """
    ops = {word: op for op, word in op_words()}
    lists: dict[str, tuple[str, ...]] = {}
    for at, part in enumerate(value.split(";") if value else ()):
        head, colon, words = part.partition(":")
        if not colon:
            head, words = "", part
        op = ops.get(head.lower(), EVERY_OP)
        if (not colon and at) or (colon and op == EVERY_OP):
            raise UsageError(f"'{part[:60]}' should begin with a collective: {', '.join(ops)}")
        listed = [named(word) for word in words.removeprefix("^").split(",")]
        if any(each not in every for each in listed):
            known = ", ".join(each.replace("_", "") for each in every)
            raise UsageError(f"'{words[:60]}' has a word that is none of {known}")
        chosen = [each for each in every if each not in listed] if words.startswith("^") else listed
        lists[op] = tuple(dict.fromkeys(filter(None, chosen)))
    return lists


def op_words() -> Iterator[tuple[str, str]]:
    """Yield each operation with the word that stands before its list."""
    for op in OPS:
        yield op, op.replace("-", "")
