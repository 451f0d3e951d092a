"""Tuner rules as the configuration file of NCCL's example tuner plug-in, which ours follows too.

Every line has all ten fields and says how many channels: NCCL's plug-in reads "any" (-1) as one channel, and unknown
words as allreduce, ring and simple, so nothing of that kind is ever written.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ringwright.costs.nccl.tuner import TunerRule
from ringwright.ground import drafts
from ringwright.ground.errors import UsageError

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


def write_nccl_tuner_csv(rules: Iterable[TunerRule], path: str | Path, *, force: bool = False) -> Path:
    """Write the file; raise UsageError if ``path`` exists and ``force`` is not set."""
    target = Path(path)
    if target.exists() and not force:
        raise UsageError(f"{target} exists", where=str(target), remedy="give --force to overwrite it")
    if not target.parent.is_dir():
        raise UsageError(f"the folder {target.parent} does not exist", remedy=f"mkdir -p {target.parent}")
    return drafts.write(target, nccl_tuner_csv(rules))


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
