"""What a written file says, read back by the reader of its format, beside what it should say: a pair for each kind of file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.mpich2.rules import facts, forced, short_name
from ringwright.costs.open_mpi import number_of, rules_file_bytes
from ringwright.costs.selection import decide
from ringwright.formats.settings.ddp_buckets import read_ddp_buckets
from ringwright.formats.settings.fsdp2_prefetch import read_fsdp2_prefetch
from ringwright.formats.settings.megatron_flags import read_megatron_flags
from ringwright.formats.settings.mpich_json import read_mpich_json
from ringwright.formats.settings.nccl_environment import read_nccl_environment
from ringwright.formats.settings.nccl_tuner_csv import read_nccl_tuner_csv
from ringwright.formats.settings.ompi_rules import read_ompi_rules
from ringwright.formats.settings.rccl_tuner_csv import read_rccl_tuner_csv
from ringwright.formats.settings.torchcomms_tuner import read_torchcomms_tuner
from ringwright.formats.settings.torchtitan_toml import read_torchtitan_toml
from ringwright.formats.sources.programs.program_files import read_program, verify_file
from ringwright.formats.sources.topology import read_topology
from ringwright.ground.units import MIB
from ringwright.model.rewrites import operations

if TYPE_CHECKING:
    from ringwright.advise.settings import Setting
    from ringwright.graph.frameworks.settings import FrameworkSettings
    from ringwright.model.topology import Topology
    from ringwright.model.workload import Workload

Says = Callable[[Path], object]
Rates = tuple[int, dict[str, float]]  # ranks, and bytes/s of each class of links


def of_operation(form: str, setting: Setting, ranks: Sequence[int], size_bytes: int) -> tuple[Says, object]:
    """Return what reads who does an operation, and who should."""
    op, knobs = setting.op, setting.knobs
    if form in ("msccl-xml", "mscclpp-json"):
        return _program(size_bytes), (op, len(ranks), size_bytes, True)
    pair = (knobs.get("algorithm", ""), knobs.get("protocol", ""))
    channels = int(knobs["channels"]) if "channels" in knobs else None
    if form == "nccl-env":

        def environment(path: Path) -> object:
            read = read_nccl_environment(path)
            return *read.of(op), read.min_channels, read.max_channels

        return environment, ((pair[0],), (pair[1],), channels, channels)
    if form == "ompi-rules":

        def rule(path: Path) -> object:
            at = rules_file_bytes(_mpi(op), len(ranks), size_bytes)
            taken = read_ompi_rules(path).find(_mpi(op), len(ranks), at)
            return None if taken is None else taken.algorithm

        return rule, number_of(_mpi(op), pair[0])
    if form == "mpich-json":

        def choice(path: Path) -> object:
            asked = facts(_mpi(op), len(ranks), size_bytes, max(1, size_bytes // 4))
            taken = decide(read_mpich_json(path), asked)
            return None if taken is None else short_name(taken.name)

        return choice, short_name(forced(_mpi(op), pair[0]).name)

    def tuned(path: Path) -> object:
        rules = (
            read_torchcomms_tuner(path)
            if form == "torchcomms-tuner-json"
            else (read_rccl_tuner_csv if form == "rccl-tuner-csv" else read_nccl_tuner_csv)(path).rules
        )
        return {(each.op, each.algorithm, each.protocol, each.channels if channels else None) for each in rules}

    return tuned, {(op, *pair, channels)}


def _program(size_bytes: int) -> Says:
    def says(path: Path) -> object:
        program = read_program(path, size_bytes=size_bytes)
        return program.collective.op, program.p, program.collective.size_bytes, verify_file(path)["valid"]

    return says


def _mpi(op: str) -> str:
    """Return what MPI libraries call a collective without counts."""
    return "reduce-scatter-block" if op == "reduce-scatter" else op


def of_buckets(workload: Workload) -> tuple[Says, object]:
    """Return what reads the sizes of buckets in MiB, and those of a scheduled workload, in order of size."""
    sent = [each.size_bytes / MIB for each in operations(workload) if each.role == "dp"]
    return lambda path: sorted(cap for each in read_ddp_buckets(path).values() for cap in each.bucket_cap_mib), sorted(
        sent
    )


def of_prefetch(depth: int) -> tuple[Says, object]:
    """Return what reads how many layers ahead parameters are gathered, and how many should be."""
    return lambda path: max(each.depth for each in read_fsdp2_prefetch(path).values()), depth


def of_form(form: str, parallel: str, micro_batches: int, workload: Workload) -> tuple[Says, object]:
    """Return what reads a parallel form and its micro-batches for a framework, and those that were advised."""
    reader: Callable[[Path, int], FrameworkSettings] = (
        read_megatron_flags if form == "megatron-flags" else read_torchtitan_toml
    )

    def says(path: Path) -> object:
        read = reader(path, workload.mesh.size)
        return set(read.form.split(",")), read.micro_batches

    return says, (set(parallel.split(",")), micro_batches)


def of_machine(machine: Topology) -> tuple[Says, object]:
    """Return what reads a machine's file, and what it should say."""
    return rates_read, rates(machine)


def rates_read(path: Path) -> Rates:
    """Return the ranks of a machine's file, and bytes/s of each class of its links."""
    return rates(read_topology(path))


def rates(machine: Topology) -> Rates:
    """Return a machine's ranks, and bytes/s of each class of its links."""
    sums = {name: float(machine.rate[machine.link_class == at].sum()) for at, name in enumerate(machine.classes)}
    return machine.n_ranks, {name: float(f"{rate:.9g}") for name, rate in sums.items() if rate}
