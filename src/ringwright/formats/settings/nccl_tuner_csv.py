"""Tuner rules as the configuration file of NCCL's example tuner plug-in, which ours follows too.

Every line has all ten fields and says how many channels: NCCL's plug-in reads "any" (-1) as one channel, and unknown
words as allreduce, ring and simple, so nothing of that kind is ever written.

It is read back as the plug-in reads it, which never refuses a word: an unknown collective is allreduce, an unknown algorithm
ring, an unknown protocol simple, and -1 channels mean one. The rules returned say what NCCL would do, the warnings what the
file meant to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ringwright.costs.nccl.constants import ALGORITHMS, PROTOCOLS
from ringwright.costs.nccl.tuner import ANY, BYTES_MAX, TunerRule
from ringwright.ground.errors import InputError, UsageError

COLLECTIVES = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all-gather": "allgather",
    "reduce-scatter": "reducescatter",
    "all-reduce": "allreduce",
}
CHANNELS_MAX = 64
LINE_MAX = 255

_HEAD = """\
# collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff
# use: NCCL_TUNER_PLUGIN=example NCCL_TUNER_CONFIG_FILE=<this file>
"""


def nccl_tuner_csv(rules: Iterable[TunerRule]) -> bytes:
    """Return the file's bytes; raise UsageError for a rule that the plug-in would read as something else."""
    return (_HEAD + "".join(_line(rule) for rule in rules)).encode("ascii")


def _line(rule: TunerRule) -> str:
    if not 1 <= rule.channels <= CHANNELS_MAX:
        raise UsageError(
            f"a rule for {rule.op} has {rule.channels} channels",
            remedy=f"give 1 to {CHANNELS_MAX}: the plug-in reads -1 as one channel",
        )
    return tuner_line(rule)


def tuner_line(rule: TunerRule) -> str:
    """Return a rule as a line of ten fields, which NCCL's example and RCCL's tuner share."""
    fields = (
        COLLECTIVES[rule.op],
        rule.min_bytes,
        rule.max_bytes,
        rule.algorithm,
        rule.protocol,
        rule.channels,
        rule.nodes,
        rule.ranks,
        rule.pipelined,
        rule.registered,
    )
    return ",".join(str(field) for field in fields) + "\n"


# read back


OPS = {theirs: ours for ours, theirs in COLLECTIVES.items()}
FILE_BYTES_MAX = 4 << 20
_FIELDS = (8, 10)
_REMEDY = "write collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]"


@dataclass(frozen=True, slots=True)
class TunerFile:
    """The rules in the order of the file, and what a reader should know about single lines (``name:line: text``)."""

    rules: tuple[TunerRule, ...]
    warnings: tuple[str, ...]


def read_nccl_tuner_csv(path: str | Path) -> TunerFile:
    """Read a file; raise InputError if it is missing, larger than 4 MiB, or holds no rule."""
    return parse_nccl_tuner_csv(tuner_bytes(path), name=str(path))


def tuner_bytes(path: str | Path) -> bytes:
    """Return what a file of rules holds; raise InputError if it is missing or larger than 4 MiB."""
    source = Path(path)
    try:
        with source.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"cannot read the tuner file: {error.strerror}", where=str(source)) from error
    if len(data) > FILE_BYTES_MAX:
        raise InputError("the tuner file is larger than 4 MiB", where=str(source), remedy="keep a few thousand rules")
    return data


def parse_nccl_tuner_csv(data: bytes, *, name: str = "tuner.conf") -> TunerFile:
    """Return the rules of a file's bytes; raise InputError if it holds none."""
    rules: list[TunerRule] = []
    warnings: list[str] = []
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{name}:{number}"
        try:
            rules.append(_rule(line, where, warnings))
        except (ValueError, UsageError) as error:
            warnings.append(f"{where}: left out: {str(error).splitlines()[0]}")
    if not rules:
        first = f": {warnings[0]}" if warnings else ""
        raise InputError(f"no tuner rule in the file{first}", where=name, remedy=_REMEDY)
    return TunerFile(tuple(rules), tuple(warnings))


def _rule(line: str, where: str, warnings: list[str]) -> TunerRule:
    if len(line) > LINE_MAX:
        warnings.append(f"{where}: longer than {LINE_MAX} characters: the plug-in splits the line")
        line = line[:LINE_MAX]
    fields = [field.strip() for field in line.split(",")]
    if not _FIELDS[0] <= len(fields) <= _FIELDS[1]:
        raise ValueError(f"{len(fields)} fields, not 8 to 10")
    op = _word(fields[0], OPS, "allreduce", "collective", where, warnings)
    algorithm = _word(fields[3], {word: word for word in ALGORITHMS}, "ring", "algorithm", where, warnings)
    protocol = _word(fields[4], {word: word for word in PROTOCOLS}, "simple", "protocol", where, warnings)
    channels, nodes, ranks, *rest = (tuner_number(field) for field in fields[5:])
    if channels == ANY:
        warnings.append(f"{where}: channels -1 leaves the plug-in's default, one channel")
        channels = 1
    least, most = tuner_number(fields[1]), min(tuner_number(fields[2]), BYTES_MAX)
    pipelined, registered = [*rest, ANY, ANY][:2]
    return TunerRule(op, least, most, algorithm, protocol, channels, nodes, ranks, pipelined, registered)


def _word(field: str, known: dict[str, str], otherwise: str, what: str, where: str, warnings: list[str]) -> str:
    if field not in known:
        warnings.append(f"{where}: {what} '{field[:32]}' is unknown: the plug-in takes {otherwise}")
    return known.get(field, known[otherwise])


def tuner_number(field: str) -> int:
    """Return a whole number of at most 20 digits; raise ValueError for anything else."""
    digits = field.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise ValueError(f"'{field[:32]}' is not a number")
    return int(field)
