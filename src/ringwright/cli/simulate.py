"""``ringwright simulate``: what a collective takes on a fabric, by each algorithm, or a whole job by each policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading, simulated
from ringwright.cli.fabrics import MachineOptions, group
from ringwright.cli.jobs import JobOptions, Results
from ringwright.cli.packets import PacketFlags
from ringwright.cli.sizes import Sizes
from ringwright.ground.errors import UsageError
from ringwright.model.collective import OPS

if TYPE_CHECKING:
    from ringwright.calls.simulation_spec import SimulationSpec


@Parameter(name="*", group=options.QUESTION)
@dataclass(frozen=True, kw_only=True)
class CollectiveOptions:
    """What is asked of a collective beside its algorithms and sizes."""

    root: Annotated[int, Parameter(help="Place of the root in the group.")] = 0
    dtype: Annotated[str | None, Parameter(help="Element type (default: float32; of a job: bfloat16).")] = None
    arrivals: Annotated[
        str | None,
        Parameter(
            help="When the ranks come: 0,20us,0,1ms (one a rank), late:3=2ms, normal:20us,seed=1, exponential:20us, "
            "uniform:20us, or the\npath of a recording. Of a job: by how much later than it could each rank begins each step."
        ),
    ] = None
    beside: Annotated[
        tuple[str, ...],
        Parameter(
            group=options.FAULTS,
            consume_multiple=False,
            help="Another job on the fabric, which repeats a collective: 'all-to-all 64MiB on 0-7 by pairwise'; may be "
            "repeated. As\nmany times longer as the flow engine says, or, if one is named, an engine's own time while it runs.",
        ),
    ] = ()
    winners: Annotated[
        bool,
        Parameter(
            help="Which algorithm wins among 2, 4, 8 ... of the ranks at which size (default: 4 B to 1 GiB, and of all-reduce "
            "a ring,\ntrees, a server, and what the network's switches add)."
        ),
    ] = False

    def question(
        self,
        collective: str,
        machine: MachineOptions,
        others: tuple[str, ...],
        engine: str | None,
        link_model: str,
        packets: PacketFlags,
    ) -> SimulationSpec:
        """Return the question as the simulator takes it; ``others``: what other jobs on the fabric repeat."""
        from ringwright.calls.asked_faults import AskedFaults
        from ringwright.calls.simulation_spec import SimulationSpec
        from ringwright.costs.link_models import ALPHA_OF, named
        from ringwright.fabrics._congestion import congestion

        topology = machine.build()
        return SimulationSpec(
            collective,
            topology,
            engine,
            group=group(machine.ranks, topology),
            alpha=ALPHA_OF[named(link_model)],
            dtype=self.dtype or "float32",
            root=self.root,
            arrivals=self.arrivals,
            healthy=machine.healthy().build(),
            calibration=machine.calibrated(),
            packets=packets.options(engine, topology, machine.seed),
            beside=tuple(congestion(line, topology.n_ranks) for line in others),
            faults=AskedFaults(machine.fault, machine.seed) if machine.fault else None,
        )


@Parameter(name="*", group=options.OUTPUT)
@dataclass(frozen=True, kw_only=True)
class SimulatedOutput:
    """What is shown of the answer, and where it is written."""

    output: Annotated[
        options.Target, Parameter(help="Write one HTML page with the table, the steps and the links' load.")
    ] = None
    trace: Annotated[Path | None, Parameter(help="Save the first algorithm's run at the largest size as a Trace.")] = (
        None
    )
    bursts: options.Bursts = False
    gap: options.Gap = None
    force: Annotated[options.Force, Parameter(help="Overwrite the page and the Trace.")] = False
    json: Annotated[options.Json, Parameter(help="Print one JSON object instead (schema ringwright.simulate/1).")] = (
        False
    )

    def results(self, arrivals: str | None) -> Results:
        """Return where answers go; ``arrivals``: when the ranks of a job come."""
        bursts = self.bursts or self.gap is not None
        return Results(self.output, self.trace, self.force, self.json, arrivals, bursts, self.gap)


AS_USUAL, TOGETHER, ON_TERMINAL = PacketFlags(), CollectiveOptions(), SimulatedOutput()
EVERYWHERE, FROM_1K, NO_JOB = MachineOptions(), Sizes(begin="1K"), JobOptions()


def simulate(
    collective: Annotated[str | None, Parameter(group=options.QUESTION)] = None,
    *,
    sample: options.Sample = False,
    job: JobOptions = NO_JOB,
    algorithm: Annotated[str | None, Parameter(group=options.QUESTION)] = None,
    machine: MachineOptions = EVERYWHERE,
    sizes: Sizes = FROM_1K,
    engine: Annotated[str | None, Parameter(group=options.ENGINE)] = None,
    link_model: options.LinkModel = "pipelined",
    packets: PacketFlags = AS_USUAL,
    asked: CollectiveOptions = TOGETHER,
    shown: SimulatedOutput = ON_TERMINAL,
    executor: options.Executor = None,
) -> int:
    """Simulate a collective (an nccl-tests table, each time with its interval), or with --model a whole job, a row per policy.

    Parameters
    ----------
    collective
        all-reduce, reduce-scatter, all-gather, broadcast, reduce, gather, scatter, all-to-all, barrier, send-recv, scan or
        exscan; or a recording (capture, trace, log), whose step is replayed by each --policy.
    algorithm
        Systems, comma separated: ring,blueconnect:factors=8x16,nccl-2-4@2.27 (default: nccl-2-4 where ranks are GPUs and of a
        job, else ring, or open-mpi for what no ring does).
        What there is: list algorithms; their knobs: systems SLUG.
    engine
        auto, closed-form, recurrence, events, flows or packets: its own time instead of the most probable one.

    Examples
    --------
    ringwright simulate all-reduce --fabric dgx-h100:2 --algorithm ring,nvls-tree -b 1M -e 64M -f 8
    ringwright simulate all-reduce --fabric dgx-h100:2 --algorithm ring,blueconnect --arrivals late:3=2ms
    ringwright simulate all-reduce --fabric dgx-h100:2 --algorithm ring -b 64M -e 64M --beside 'all-to-all 64MiB on 7,8'
    ringwright simulate all-reduce --winners --fabric switch:16,sharp=true -f 16
    ringwright simulate --model resnet50 --gpus 8 --fabric dgx-h100:1 --policy pytorch-ddp,p3
    ringwright simulate --sample --policy p3
    """
    collective = reading.recording(collective, sample=sample)
    machine, others = machine.congested(asked.beside)
    if others and collective is not None and collective not in OPS:
        raise UsageError(
            "a recorded job beside another is not simulated",
            where=others[0],
            remedy="--model, or a collective, with --beside",
        )
    results = shown.results(asked.arrivals)
    if collective is not None and collective not in OPS and Path(collective).exists():
        return job.replay(collective, machine, algorithm or "", results, executor)
    if collective is None:
        job.refuse_executor(executor)
        return job.answer(machine, algorithm or "", asked.dtype, results, others)
    job.refuse_networks("a collective goes over one network")
    job.refuse_recorded()
    from ringwright.calls.library_calls import usual_algorithm

    question = asked.question(collective, machine, others, engine, link_model, packets)
    if asked.winners:
        wanted = simulated.sizes_of_a_map(sizes, FROM_1K).listed(collective)
        return simulated.show_winners(question, algorithm, wanted, results, executor)
    usual = usual_algorithm(question.collective(0), question.topology, question.calibration)
    return simulated.show(question, algorithm or usual, sizes.listed(collective), results, executor)
