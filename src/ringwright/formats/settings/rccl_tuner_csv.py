"""Tuner rules for RCCL's built-in CSV tuner: the fields of NCCL's example, read with more care.

RCCL leaves out a line with a word that it does not know, and -1 channels leave its own number (ROCm/rocm-systems, pull
request 4503, ``projects/rccl/src/plugin/tuner/csv_tuner.cc``). It reads the file that ``NCCL_TUNER_CONFIG_FILE`` names, else
``rccl_tuner_<arch>.csv`` in ``share/rccl/tuner``; a tuner plug-in in ``NCCL_TUNER_PLUGIN`` takes its place.

Read back as RCCL reads it: a line with a word that it does not know or a field of blanks is left out, of more than ten fields
the first ten count, and -1 channels leave RCCL's own number. Numbers are read more strictly than there: what is none leaves
its line out, where RCCL takes the digits in front.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ringwright.costs.nccl.constants import ALGORITHMS, PROTOCOLS
from ringwright.costs.nccl.tuner import ANY, BYTES_MAX, TunerRule
from ringwright.formats.settings.nccl_tuner_csv import (
    LINE_MAX,
    OPS,
    TunerFile,
    tuner_bytes,
    tuner_line,
    tuner_number,
)
from ringwright.ground.errors import InputError, UsageError

_HEAD = """\
# colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff
# use: NCCL_TUNER_CONFIG_FILE=<this file>, without NCCL_TUNER_PLUGIN
"""


def rccl_tuner_csv(rules: Iterable[TunerRule]) -> bytes:
    """Return the file's bytes; raise UsageError for a number of channels that RCCL would pass over."""
    return (_HEAD + "".join(_line(rule) for rule in rules)).encode("ascii")


def _line(rule: TunerRule) -> str:
    if rule.channels < 1 and rule.channels != ANY:
        raise UsageError(
            f"a rule for {rule.op} has {rule.channels} channels", remedy="give 1 or more, or -1 for RCCL's own"
        )
    return tuner_line(rule)


# read back


_MOST_FIELDS = 10
_REMEDY = "write colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]"


def read_rccl_tuner_csv(path: str | Path) -> TunerFile:
    """Read a file; raise InputError if it is missing, larger than 4 MiB, or holds no rule."""
    return parse_rccl_tuner_csv(tuner_bytes(path), name=str(path))


def parse_rccl_tuner_csv(data: bytes, *, name: str = "rccl_tuner.csv") -> TunerFile:
    """Return the rules of a file's bytes; raise InputError if it holds none."""
    rules: list[TunerRule] = []
    warnings: list[str] = []
    for number, line in enumerate(data.partition(b"\0")[0].decode("utf-8", "replace").split("\n"), 1):
        if not line.strip() or line.lstrip(" \t").startswith("#"):
            continue
        try:
            rules.append(_rule(line))
        except (ValueError, UsageError) as error:
            warnings.append(f"{name}:{number}: left out: {str(error).splitlines()[0]}")
    if b"\0" in data:
        warnings.append(f"{name}: RCCL reads up to the first zero byte")
    if not rules:
        first = f": {warnings[0]}" if warnings else ""
        raise InputError(f"no tuner rule in the file{first}", where=name, remedy=_REMEDY)
    return TunerFile(tuple(rules), tuple(warnings))


def _rule(line: str) -> TunerRule:
    if len(line) > LINE_MAX:
        raise ValueError(f"longer than {LINE_MAX} characters: RCCL splits the line")
    fields = [field.strip() for field in line.split(",") if field][:_MOST_FIELDS]
    if "" in fields:
        raise ValueError("an empty field")
    if len(fields) < 8:
        raise ValueError(f"{len(fields)} fields, not 8 to 10")
    for field, known in ((fields[0], OPS), (fields[3], ALGORITHMS), (fields[4], PROTOCOLS)):
        if field not in known:
            raise ValueError(f"'{field[:32]}' is unknown: one of {', '.join(known)}")
    channels, nodes, ranks, *rest = (tuner_number(field) for field in fields[5:])
    if channels < 1 and channels != ANY:
        raise ValueError(f"{channels} channels: 1 or more, or -1")
    low, high = (min(tuner_number(field), BYTES_MAX) for field in fields[1:3])
    pipelined, registered = [*rest, ANY, ANY][:2]
    return TunerRule(OPS[fields[0]], low, high, fields[3], fields[4], channels, nodes, ranks, pipelined, registered)
