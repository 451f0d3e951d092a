"""The command that writes the file by which a change is made, where there is such a file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringwright.advise.settings import FORM, IN, OPERATION, Setting
from ringwright.studies.jobs.costs import LIBRARY
from ringwright.studies.provision.variants import is_spelled

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation
    from ringwright.studies.jobs.generated import GeneratedJobSpec

BUCKETS = "pytorch-ddp"


def export_of(situation: Situation, settings: Sequence[Setting]) -> str | None:
    """Return commands that write what is to be set, one after another; None where a line of code or a person does it."""
    written = [command for each in settings for command in _commands(situation, each)]
    return "; ".join(dict.fromkeys(written)) or None


def _commands(situation: Situation, setting: Setting) -> Iterator[str]:
    topology = situation.topology
    if setting.slot.startswith(OPERATION) and topology is not None and is_spelled(topology):
        op = setting.slot.removeprefix(OPERATION)
        form, name = (
            ("nccl-tuner-csv", "tuner.csv") if setting.system.startswith(LIBRARY) else ("msccl-xml", f"{op}.xml")
        )
        asked = f"--fabric {topology.name} --algorithm {setting.spelling}"
        yield f"ringwright export {op} {asked} --to {form} -o {name}"
    elif setting.system == BUCKETS and situation.spec is not None:
        yield f"{_workload(situation.spec)} --policy {setting.spelling} --to ddp-buckets-py -o buckets.py"
    elif setting.slot == FORM and situation.spec is not None:
        form, _, batches = setting.spelling.rpartition(IN)
        yield f"{_workload(situation.spec, form, batches)} --to megatron-flags -o megatron.txt"


def _workload(spec: GeneratedJobSpec, form: str = "", batches: str = "") -> str:
    """Return the question about a model as it is typed."""
    given = spec.card
    asked = {
        "gpus": given.gpus,
        "parallel": form or given.parallel,
        "micro-batches": batches or given.micro_batches,
        "micro-batch-size": given.micro_batch_size,
        "seq": given.seq,
        "dtype": given.dtype,
    }
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in asked.items() if value is not None]
    return " ".join(["ringwright workload", given.model, *words])
