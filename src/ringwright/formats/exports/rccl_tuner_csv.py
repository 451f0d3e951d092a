"""Tuner rules for RCCL's built-in CSV tuner: the fields of NCCL's example, read with more care.

RCCL leaves out a line with a word that it does not know, and -1 channels leave its own number (ROCm/rocm-systems, pull request
4503, ``projects/rccl/src/plugin/tuner/csv_tuner.cc``). It reads the file that ``NCCL_TUNER_CONFIG_FILE`` names, else
``rccl_tuner_<arch>.csv`` in ``share/rccl/tuner``; a tuner plug-in in ``NCCL_TUNER_PLUGIN`` takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringwright.costs.nccl.tuner import ANY, TunerRule
from ringwright.formats.exports.nccl_tuner_csv import tuner_line
from ringwright.ground.errors import UsageError

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
