"""Two published effects of disturbances, simulated: a NIC that loses one of two links, and go-back-N under loss."""

from __future__ import annotations

from ringwright.advise.provision.parallel_forms import chosen_form
from ringwright.advise.provision.question import POLICY
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import RingwrightError
from ringwright.jobs import model_job, study
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm

HOSTS, MODEL, DEVICE = 32, "llama2-7b", "h100"
MESSAGE, PAIR = 16 << 20, "switch:2,transport=roce"


def link_down() -> float:
    """Return the share of training throughput that is lost where one NIC of 256 has half of its rate."""
    top = fabric(f"rail-optimised:{HOSTS}")
    question = GeneratedJobSpec(WorkloadSpec(MODEL, top.n_ranks), DEVICE)
    form = chosen_form(question, top, POLICY)
    formed = WorkloadSpec(MODEL, top.n_ranks, form.parallel, form.micro_batches)
    healthy, broken = (
        study.answer(model_job.made(GeneratedJobSpec(formed, DEVICE), machine), POLICY).step_s
        for machine in (top, apply(top, ["link node0/nic0--leaf0 rate 50%"]))
    )
    return 1 - healthy / broken


def lossy_throughput() -> float | None:
    """Return the throughput of a long RoCE message at 1 % loss over that without; 0 where the connection is given up."""
    top = fabric(PAIR)
    _, make, knobs = algorithm("nccl-2-4")
    program = make(Collective("send-recv", (0, 1), MESSAGE, "float32"), top, **knobs)
    whole = simulate(program, top, "packets").time_s
    try:
        return whole / simulate(program, apply(top, ["link rank0 loss 1%"]), "packets").time_s
    except RingwrightError:
        return 0.0
