"""The files by which a change is made, and the commands that write the same and measure it; none where a person makes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ringwright.advise import files_read_back
from ringwright.advise.layers.fsdp import ahead, gathers
from ringwright.advise.layers.nccl import forced_environment
from ringwright.advise.machines import NAMED, machine_of
from ringwright.advise.settings import FORM, IN, MACHINE, PREFETCH, Setting, Setup
from ringwright.advise.software import MPI_LIBRARIES, job_command
from ringwright.calls import export_files
from ringwright.formats.exports import find
from ringwright.formats.exports.topology_json import topology_json
from ringwright.formats.settings.nccl_environment import variables
from ringwright.ground.errors import RingwrightError
from ringwright.jobs import model_job
from ringwright.jobs.pricing.costs import LIBRARY
from ringwright.search.replan import spelled

if TYPE_CHECKING:
    from ringwright.advise.files_read_back import Says
    from ringwright.advise.situation import Situation
    from ringwright.jobs.model_job import GeneratedJobSpec
    from ringwright.model.workload import Workload

BEFORE, AFTER = "before", "after"
BUCKETS = "pytorch-ddp"
OF_AMD = ("mi250", "mi300")  # families of fabrics whose ranks run RCCL
UNEVEN = ("forest",)  # systems that cut a size as it suits them, unless they are told to cut it evenly
GRAIN = 4096  # bytes a rank, to a multiple of which the size of a program is raised: runtimes cut it evenly
# What a library is told by: export and end of the file's name.
NCCL_FORMS = (("nccl-tuner-csv", "tuner.csv"), ("torchcomms-tuner-json", "torchcomms.json"))
RCCL_FORMS = (("rccl-tuner-csv", "rccl-tuner.csv"),)
MPI_FORMS = {"open-mpi": (("ompi-rules", "ompi-rules.txt"),), "mpich2": (("mpich-json", "mpich.json"),)}
PROGRAM_FORMS = (("msccl-xml", "msccl.xml"), ("mscclpp-json", "mscclpp.json"))


@dataclass(frozen=True)
class AdvisedFile:
    """A file that makes a change: its name, the command that writes it (empty: the folder of advice alone has it), its bytes.

    ``says`` reads a file and returns what it says, which must be ``advised``.
    """

    name: str
    command: str
    data: bytes = field(repr=False)
    says: Says = field(repr=False)
    advised: object = field(repr=False)


def files_of(situation: Situation, settings: Sequence[Setting]) -> tuple[list[AdvisedFile], list[str]]:
    """Return the files of settings that are changed together, and why what no file can hold has none."""
    files: dict[str, AdvisedFile] = {}
    refused: dict[str, None] = {}
    for setting in settings:
        for make in _makers(situation, setting):
            try:
                files |= {each.name: each for each in make}
            except RingwrightError as error:
                refused[f"no file: {error.what}"] = None
    return list(files.values()), [] if files else list(refused)


def export_of(files: Sequence[AdvisedFile]) -> str | None:
    """Return commands that write the files, one after another; None where there are none."""
    return "; ".join(dict.fromkeys(each.command for each in files if each.command)) or None


def _makers(situation: Situation, setting: Setting) -> Iterator[Iterator[AdvisedFile]]:
    """Yield the files of a setting; each group of them is made, or refused, by itself."""
    if setting.op and situation.topology is not None:
        for form, end in _forms(situation, setting):
            yield _of_operation(situation, setting, form, f"{setting.op}-{end}")
    elif situation.spec is None:
        if setting.slot == MACHINE:
            yield _of_machine(situation, setting)
    elif setting.system == BUCKETS:
        yield _of_buckets(situation.spec, setting)
    elif setting.slot == PREFETCH:
        yield _of_prefetch(situation.spec, int(setting.spelling))
    elif setting.slot == FORM:
        for form, name in (("megatron-flags", "megatron.txt"), ("torchtitan-toml", "torchtitan.toml")):
            yield _of_form(situation.spec, setting, form, name)
    elif setting.slot == MACHINE:
        yield _of_machine(situation, setting)


def _forms(situation: Situation, setting: Setting) -> tuple[tuple[str, str], ...]:
    if setting.system == LIBRARY and situation.topology is not None:
        family = situation.topology.name.partition(":")[0]
        return (*(RCCL_FORMS if family in OF_AMD else NCCL_FORMS), ("nccl-env", "nccl.env"))
    return MPI_FORMS[setting.system] if setting.system in MPI_LIBRARIES.values() else PROGRAM_FORMS


def _of_operation(situation: Situation, setting: Setting, form: str, name: str) -> Iterator[AdvisedFile]:
    """Yield what ``ringwright export`` writes of who does an operation, for its size and its group."""
    topology = situation.topology
    if topology is None:
        return
    ranks = setting.ranks or tuple(range(topology.n_ranks))
    is_program = form in dict(PROGRAM_FORMS)
    spelling = f"{setting.spelling}:even=on" if setting.spelling in UNEVEN and is_program else setting.spelling
    size = (
        -(-max(setting.size_bytes, 1) // (GRAIN * len(ranks))) * GRAIN * len(ranks)
        if is_program
        else setting.size_bytes
    )
    (data,) = export_files.export(form, setting.op, topology, spelling, size, ranks)
    asked = [situation.machine, f"--algorithm {shlex.quote(spelling)}"]
    asked += [f"--ranks {spelled(ranks)}"] if len(ranks) < topology.n_ranks else []
    asked += [f"-b {size}"] if is_program else []
    command = f"ringwright export {setting.op} {' '.join(asked)} --to {form} -o {name}" if situation.machine else ""
    yield AdvisedFile(name, command, data, *files_read_back.of_operation(form, setting, ranks, size))


def _of_buckets(spec: GeneratedJobSpec, setting: Setting) -> Iterator[AdvisedFile]:
    workload = model_job.workload(spec, setting.spelling)
    command = f"{_asked(spec)} --policy {setting.spelling} --to ddp-buckets-py -o buckets.py"
    yield AdvisedFile("buckets.py", command, _one(workload, "ddp-buckets-py"), *files_read_back.of_buckets(workload))


def _of_prefetch(spec: GeneratedJobSpec, depth: int) -> Iterator[AdvisedFile]:
    workload = model_job.workload(spec)
    data = _one(ahead(workload, depth), "fsdp2-prefetch-py")
    layers = max((len(each) for each in gathers(workload)), default=0) - 1
    yield AdvisedFile("prefetch.py", "", data, *files_read_back.of_prefetch(min(depth, layers)))


def _of_form(spec: GeneratedJobSpec, setting: Setting, form: str, name: str) -> Iterator[AdvisedFile]:
    parallel, _, batches = setting.spelling.rpartition(IN)
    other = replace(spec, card=replace(spec.card, parallel=parallel, micro_batches=int(batches)))
    workload = model_job.workload(other)
    command = f"{_asked(other)} --to {form} -o {name}"
    yield AdvisedFile(
        name, command, _one(workload, form), *files_read_back.of_form(form, parallel, int(batches), workload)
    )


def _of_machine(situation: Situation, setting: Setting) -> Iterator[AdvisedFile]:
    if situation.topology is None:
        return
    machine = machine_of(situation.topology, situation.workload, Setup((setting,)))
    data = topology_json(machine)
    named = setting.spelling.removeprefix(NAMED) if setting.spelling.startswith(NAMED) else ""
    command = f"ringwright export all-reduce --fabric {named} --to topology-json -o fabric.json" if named else ""
    yield AdvisedFile("fabric.json", command, data, *files_read_back.of_machine(machine))


def _one(workload: Workload, form: str) -> bytes:
    """Return the one file of a workload in a form."""
    files = find(form, "workload").files(workload)
    (data,) = files if isinstance(files, list) else files.values()
    return data


def _asked(spec: GeneratedJobSpec) -> str:
    """Return the question about a model as it is typed."""
    given = spec.card
    asked = {
        "gpus": given.gpus,
        "parallel": given.parallel,
        "micro-batches": given.micro_batches,
        "micro-batch-size": given.micro_batch_size,
        "seq": given.seq,
        "dtype": given.dtype,
        "gpu": spec.gpu,
    }
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in asked.items() if value is not None]
    return " ".join(["ringwright workload", given.model, *words])


def measure_of(situation: Situation, after: Setup, recording: str) -> str:
    """Return it: the job recorded with all that is changed so far, and held against the recording, or a run without.

    ``recording`` is how the recording is named on a command line. What NCCL's variables say stands in the command; any other
    change is made before it runs.
    """
    told = forced_environment(after)
    words = [f"{name}={shlex.quote(value)}" for name, value in variables(told)] if told is not None else []
    job = job_command(situation.trace)
    changed = " ".join([*words, f"ringwright run -o {AFTER} -- {job}"])
    if situation.trace is None:
        return f"ringwright run -o {BEFORE} -- {job}; {changed}; ringwright diff {BEFORE} {AFTER}"
    return f"{changed}; ringwright diff {recording} {AFTER}"
