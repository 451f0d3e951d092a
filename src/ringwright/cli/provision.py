"""``ringwright provision``: the least network that keeps a step, for each workload and fabric."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, progress, reading


@Parameter(name="*", group=options.JOB)
@dataclass(frozen=True, kw_only=True)
class SizedModels:
    """What all models that are named have in common."""

    gpus: Annotated[int | None, Parameter(help="Number of GPUs (default: all that the smallest fabric has).")] = None
    parallel: Annotated[
        str | None, Parameter(help="tp8,pp16,sp,zero1 ...; default: the fastest of the simple forms that fit.")
    ] = None
    micro_batches: Annotated[int | None, Parameter(help="Micro-batches of an iteration.")] = None
    micro_batch_size: Annotated[int | None, Parameter(help="Sequences, or images, of one.")] = None
    seq: Annotated[int | None, Parameter(help="Tokens of a sequence.")] = None
    dtype: Annotated[str | None, Parameter(help="Element type (default: bfloat16).")] = None
    mode: Annotated[str, Parameter(help="training, prefill or decode, of models that name none.")] = "training"
    gpu: Annotated[str | None, Parameter(help="Device: a100, h100, b200 ... (list gpus)")] = None
    fit: Annotated[str | None, Parameter(help="Name or file of efficiencies fitted to measured steps.")] = None


USUAL = SizedModels()


def provision(
    *workloads: str,
    fabric: Annotated[tuple[str, ...], Parameter(group=options.MACHINE, consume_multiple=False)] = (),
    within: Annotated[str, Parameter(group=options.QUESTION)] = "5%",
    prices: Annotated[tuple[str, ...], Parameter(group=options.QUESTION, consume_multiple=False)] = (),
    model: SizedModels = USUAL,
    algorithm: Annotated[str, Parameter(group=options.QUESTION)] = "",
    policy: Annotated[str | None, Parameter(group=options.POLICY)] = None,
    interval: Annotated[bool, Parameter(group=options.QUESTION)] = False,
    output: options.Target = None,
    force: options.Force = False,
    executor: options.Executor = None,
    json: options.Json = False,
) -> int:
    """Size the network: the least NICs, tiers and buffers that keep each workload's step, and what one failed optic needs.

    Each recommendation is simulated at its edge: it keeps the promise, one step less breaks it.

    Parameters
    ----------
    workloads
        Models (llama3-70b, deepseek-v3:decode; list models) and recordings or workload files.
    fabric
        A fabric as it is planned (dgx-h100:8; list fabrics) or a file of one; may be repeated. Its own network is the reference.
    within
        By which share a step may be longer than on the fabric as it is.
    prices
        KEY=VALUE or a TOML file: nic, port, optic for a Gb/s, nic@400 for one of 400 Gb/s; may be repeated. The network that
        costs least is then recommended, else the one of least Gb/s.
    algorithm
        Who does the collectives (default: nccl-2-4).
    policy
        Scheduler of the communication (default: pytorch-ddp; of recordings none).
    interval
        Also by how much the step may be longer: 5 to 95 % of draws of what is not known, as in advise.
    output
        A folder for the recommended networks, each a file of a fabric that --topology takes.
    force
        Overwrite what stands there.
    json
        Print one JSON object instead (schema ringwright.provision/1).

    Examples
    --------
    ringwright provision resnet-50 --fabric dgx-h100:2
    ringwright provision resnet-18 --fabric leaf-spine:4 --fabric switch:4 --within 10%
    ringwright provision resnet-50 --fabric leaf-spine:4 --prices nic=2,port=1.5,optic=1
    """
    from ringwright.advise import networks
    from ringwright.advise.provision.prices import read_prices
    from ringwright.advise.provision.question import ProvisionSpec, parse_share
    from ringwright.calls.arguments import machine
    from ringwright.formats.exports.placement import claim_folder
    from ringwright.ground.documents import as_json
    from ringwright.jobs.model_workload import WorkloadSpec

    common = WorkloadSpec(
        "",
        model.gpus,
        model.parallel,
        model.micro_batches,
        model.micro_batch_size,
        model.seq,
        model.dtype,
        mode=model.mode,
    )
    spec = ProvisionSpec(
        workloads, parse_share(within), common, model.gpu, model.fit, algorithm, policy, read_prices(prices)
    )
    if output is not None:
        claim_folder(output, force=force)
    with progress.steps("provisioning") as advance:
        machines = [machine(each) for each in fabric]
        result, files = networks.provisioned(spec, machines, drawn=interval, advance=advance, executor=executor)
    if output is not None:
        result = networks.write(files, result, output)
    if json:
        reading.print_json(as_json(result))
        return 0
    from ringwright.reports.steps import provisioned

    provisioned.write(result, sys.stdout)
    return 0
