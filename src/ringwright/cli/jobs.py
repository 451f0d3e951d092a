"""The options of a whole job, for the verbs that simulate one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ringwright.cli import options
from ringwright.ground.documents import as_json, read_json
from ringwright.ground.errors import EXIT_GOOD, EXIT_INFEASIBLE, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringwright.cli.fabrics import MachineOptions
    from ringwright.jobs.study import Job
    from ringwright.model.topology import Topology


@Parameter(name="*", group=options.JOB)
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """A job from a model card."""

    model: Annotated[
        str | None, Parameter(help="vgg16, resnet50, gpt3-175b, llama3-70b ... (list models): a whole job.")
    ] = None
    gpus: Annotated[int | None, Parameter(help="Number of GPUs.")] = None
    parallel: Annotated[str | None, Parameter(help="tp8,pp16,dp128,sp,sg,vp2,cp2,ep8,zero1,fsdp.")] = None
    policy: Annotated[
        str | None,
        Parameter(
            group=options.POLICY,
            help="Schedulers, comma separated: none,p3:slice_elements=40000,outer+inner (list policies).",
        ),
    ] = None
    rewrite: Annotated[
        tuple[str, ...],
        Parameter(
            group=options.POLICY,
            help="Rewrite the graph of the step first: RULE:at=NAME or RULE:role=dp (docs: rules); may be repeated.",
            consume_multiple=False,
        ),
    ] = ()
    network: Annotated[
        tuple[str, ...],
        Parameter(
            group=options.MACHINE,
            help="One more network of all ranks, NAME=FABRIC: ethernet=switch:64,rate=25Gb/s; may be repeated.",
            consume_multiple=False,
        ),
    ] = ()
    ran_on: Annotated[
        str | None,
        Parameter(group=options.MACHINE, help="The fabric that a recording ran on, where --fabric is to be another."),
    ] = None
    micro_batches: Annotated[int | None, Parameter(help="Micro-batches of an iteration.")] = None
    micro_batch_size: Annotated[int | None, Parameter(help="Sequences, or images, of one.")] = None
    seq: Annotated[int | None, Parameter(help="Tokens of a sequence.")] = None
    gradients: Annotated[str | None, Parameter(help="Element type of gradients.")] = None
    gpu: Annotated[str | None, Parameter(help="Device: a100, h100, b200, gb200 ... (list gpus)")] = None
    fit: Annotated[str | None, Parameter(help="Name or file of efficiencies fitted to measured steps.")] = None
    recompute: Annotated[str, Parameter(help="none, selective, selective-op (torchtitan's) or full.")] = "none"
    mode: Annotated[str, Parameter(help="training, prefill or decode.")] = "training"
    schedule: Annotated[str, Parameter(help="Pipeline: 1f1b, breadth-first, zb-h1, zb-v, dualpipe and others.")] = (
        "1f1b"
    )
    stages: Annotated[str, Parameter(help="Layers of each pipeline stage: 10,11,11 (chunk by chunk with vp).")] = ""
    interference: Annotated[
        str, Parameter(group=options.ENGINE, help="Overlapped compute: none, factor, share, waves, measured.")
    ] = "none"
    step_ms: Annotated[float | None, Parameter(help="Scale compute to this measured step of one GPU.")] = None
    tune: Annotated[
        int | None, Parameter(group=options.POLICY, help="Tune each policy's knobs in so many simulated steps.")
    ] = None
    memory: Annotated[
        str | None,
        Parameter(group=options.POLICY, help="What a rank may hold, 80GiB: a policy that needs more is declined."),
    ] = None
    unfolded: Annotated[bool, Parameter(group=options.ENGINE, help="Simulate every rank, symmetric or not.")] = False

    def question(self, algorithm: str, dtype: str | None) -> Any:
        """Return the question as the study takes it; UsageError without a model."""
        from ringwright.jobs.model_job import GeneratedJobSpec
        from ringwright.jobs.model_workload import WorkloadSpec

        if self.model is None:
            raise UsageError("no model is named", remedy="--model llama3-70b --gpus 64 --parallel tp4,pp8")
        card = WorkloadSpec(
            self.model,
            self.gpus,
            self.parallel,
            self.micro_batches,
            self.micro_batch_size,
            self.seq,
            dtype,
            self.gradients,
            self.recompute,
            self.mode,
            stages=self.stages,
        )
        algorithms = {"": algorithm} if algorithm else {}
        return GeneratedJobSpec(card, self.gpu, algorithms, self.schedule, self.step_ms, fit=self.fit)

    def answer(
        self, machine: MachineOptions, algorithm: str, dtype: str | None, results: Results, others: tuple[str, ...] = ()
    ) -> int:
        """Answer for the model: a row per policy; ``others``: lines that say what other jobs on the fabric repeat."""
        from ringwright.fabrics._congestion import congestion
        from ringwright.jobs import model_job, switch_gains
        from ringwright.jobs.study import without_faults_too

        self.refuse_recorded()
        first, *others_by = algorithm.split(",")
        question = self.question(first, dtype)
        topology = machine.build() if machine.fabric or machine.topology else None
        if others and topology is None:
            raise UsageError("no fabric is named that jobs could share", where=others[0], remedy="--fabric dgx-h100:2")
        beside = tuple(congestion(line, topology.n_ranks) for line in others) if topology is not None else ()
        told = {"beside": [other.text for other in beside]} if beside else None
        networks = self._networks()

        def by(system: str, plain: bool) -> Job:
            on = switch_gains.plain_switches(topology) if plain and topology is not None else topology
            return model_job.made(self.question(system, dtype), on, beside, networks)

        compared = _Compared(first, tuple(others_by), by)
        made = model_job.made(question, topology, beside, networks)
        if topology is not None and (machine.fault or beside):
            made = without_faults_too(made, model_job.made(question, machine.healthy().build(), (), networks))
        return self._rows(made, "pytorch-ddp", results, more=told, compared=compared)

    def replay(
        self, recording: str, machine: MachineOptions, algorithm: str, results: Results, executor: str | None = None
    ) -> int:
        """Answer for a recording, first how far its replay is from what was measured; or for a workload file.

        A workload file has no measured times: its operations take those of the fabric.
        """
        from ringwright.cli import reading
        from ringwright.executors.fan_out import fan_out
        from ringwright.fabrics import fabric
        from ringwright.jobs import recorded_job, switch_gains, workload_files
        from ringwright.jobs.study import without_faults_too
        from ringwright.workloads.replay import replayed

        first, *others = algorithm.split(",")

        given = [name for name in OF_A_MODEL if getattr(self, name) != getattr(NOTHING, name)]
        if given:
            raise UsageError(
                f"--{given[0].replace('_', '-')} is for a model, {recording} is what it is", remedy="leave it out"
            )
        if workload_files.is_workload(Path(recording)):
            self.refuse_executor(executor)
            return self._read(Path(recording), machine, first, others, results)
        self.refuse_networks(f"{recording} tells what its own network did")
        with fan_out(executor) as fan:
            replay = replayed(reading.trace([recording], executor=fan))
        if self.ran_on and replay.measured_s is None:
            raise UsageError(
                f"--ran-on {self.ran_on}: {recording} has no times, so that operations take what they take on --fabric",
                remedy="leave it out",
            )
        was = fabric(self.ran_on) if self.ran_on else recorded_job.ran_on(replay)
        if was is not None and not machine.is_named:
            machine = replace(machine, fabric=was.name)
        machine, told = switch(machine, replay.workload.mesh.size)
        healthy = machine.healthy().build()
        faulty = machine.build() if machine.fault else healthy

        def by(system: str, plain: bool) -> Job:
            before, after = (switch_gains.plain_switches(each) if plain else each for each in (healthy, faulty))
            return recorded_job.job(replay, recorded_job.Counterfactual(system, before, after, was))

        made = recorded_job.job(replay, recorded_job.Counterfactual(first, healthy, faulty, was))
        if machine.fault:
            made = without_faults_too(
                made, recorded_job.job(replay, recorded_job.Counterfactual(first, healthy, healthy, was))
            )
        told = told if made.fabric != recorded_job.ITS_OWN else ()
        compared = _Compared(first, tuple(others), by, adds=switch_gains.switches_add(healthy))
        ground = recorded_job.ground(replay) | {"executor": fan.account.document()}
        return self._rows(made, "none", results, told, ground, compared)

    def _read(self, path: Path, machine: MachineOptions, first: str, others: Sequence[str], results: Results) -> int:
        from ringwright.jobs import switch_gains, workload_files
        from ringwright.jobs.study import without_faults_too

        self.refuse_recorded()
        workload = workload_files.read(path)
        machine, told = switch(machine, workload.mesh.size)
        built, networks = machine.build(), self._networks()

        def by(system: str, plain: bool) -> Job:
            return workload_files.job(
                workload, switch_gains.plain_switches(built) if plain else built, system, networks
            )

        made = workload_files.job(workload, built, first, networks)
        if machine.fault:
            made = without_faults_too(made, workload_files.job(workload, machine.healthy().build(), first, networks))
        return self._rows(made, "none", results, told, compared=_Compared(first, tuple(others), by))

    def _networks(self) -> dict[str, Topology]:
        """Return the networks beside the fabric, built, by name."""
        from ringwright.fabrics import fabric
        from ringwright.jobs.pricing.networks import named

        return {name: fabric(spelling) for name, spelling in named(self.network).items()}

    def refuse_recorded(self) -> None:
        """Raise UsageError where the fabric of a recording is named, and there is none."""
        if self.ran_on:
            raise UsageError(
                f"--ran-on {self.ran_on}: it is of a recording, and none is named",
                remedy="leave it out, or name a recording",
            )

    @staticmethod
    def refuse_executor(executor: str | None) -> None:
        """Raise UsageError where somebody is named who works: policies are simulated one after the other, here."""
        if executor is not None:
            raise UsageError(
                f"--executor {executor}: it reads recordings, and simulates sizes of a collective",
                remedy="leave it out: policies of a job are simulated here",
            )

    def refuse_networks(self, why: str) -> None:
        """Raise UsageError where networks are given beside the fabric, and what is simulated has one."""
        if self.network:
            raise UsageError(
                f"--network {self.network[0]}: {why}",
                remedy="leave it out, or simulate a job: --model, a workload file",
            )

    def _settled(self, job: Job, told: tuple[str, ...], results: Results, limit: int | None) -> Job:
        """Return a job as these options make it."""
        from ringwright.jobs import model_job, study
        from ringwright.jobs.memory import limited

        job = replace(
            job,
            assumptions=(*job.assumptions, *told),
            folded=job.folded and not self.unfolded,
            interference=model_job.interference(self.interference, job.interference),
        )
        job = study.arriving_late(job, results.arrivals)
        if self.rewrite:
            from ringwright.graph.algebra.typed_rules import apply_spelled

            for spelling in self.rewrite:
                job = replace(job, workload=apply_spelled(job.workload, spelling))
        return job if limit is None else replace(job, workload=limited(job.workload, limit))

    def _rows(
        self,
        job: Job,
        usual: str,
        results: Results,
        told: tuple[str, ...] = (),
        more: dict[str, Any] | None = None,
        compared: _Compared | None = None,
    ) -> int:
        """Simulate the policies and show them; save the first one's run where a trace is asked for."""
        from ringwright.cli import progress, reading
        from ringwright.ground.units import parse_size
        from ringwright.jobs import auto, bursts, rows, study, switch_gains, tune

        limit = None if self.memory is None else parse_size(self.memory)
        job = self._settled(job, told, results, limit)
        wanted = (self.policy or usual).split(",")
        gap_s = options.gap_seconds(results.gap)
        shown: dict[str, object] = {}
        systems = compared.systems(job) if compared is not None else ()
        stepped: list[tuple[str, switch_gains.SteppedSystem]] = []
        with progress.steps("simulating") as advance:
            tuned = [tune.tuned(job, policy, self.tune) for policy in wanted] if self.tune is not None else []
            wanted, search = auto.expanded(job, [each.spelling for each in tuned] or wanted, limit)
            traced_policy = search.frontier[0] if search and search.frontier else wanted[0]

            def kept(result: study.PolicyResult) -> None:
                if results.trace and result.policy == traced_policy:
                    from ringwright.jobs import job_trace

                    reading.save_run(job_trace.trace(job, result), results.trace, force=results.force)
                if results.holds_bursts and not shown:
                    shown.update(bursts.burst_keys(job, result, gap_s))
                if systems and compared is not None and not stepped:
                    stepped.append((result.policy, switch_gains.stepped(job, compared.label(job), result)))

            pictures = results.output is not None and not results.json
            result = rows.document(
                job, wanted, memory_bytes=limit, search=search, pictures=pictures, kept=kept, progress=advance
            )
            if stepped and compared is not None:
                (policy, first), by = stepped[0], compared.by

                def settled(system: str, plain: bool) -> Job:
                    return self._settled(by(system, plain), told, results, limit)

                result["in_network"] = as_json(switch_gains.compare_systems(first, policy, systems, settled, advance))
        result |= shown | (more or {}) | ({"tuned": [tune.document(each) for each in tuned]} if tuned else {})
        return results.show(result)


@dataclass(frozen=True)
class _Compared:
    """Who else does the collectives: systems that were named behind the first, and what makes the job with one of them.

    Where none was named and the network's switches add, the usual ones are compared.
    """

    first: str
    others: tuple[str, ...]
    by: Callable[[str, bool], Job]
    adds: bool = False  # whether the switches of a recording's fabric do, of which its own times know nothing

    def systems(self, job: Job) -> tuple[str, ...]:
        """Return the systems to compare with."""
        from ringwright.jobs import switch_gains

        if len({self.first, *self.others}) < 1 + len(self.others):
            raise UsageError("an algorithm is named twice", remedy="each once: --algorithm ring,sharp")
        if self.others:
            return self.others
        is_usual = not self.first and (self.adds or switch_gains.adds_between_hosts(job))
        return switch_gains.competitors(self.first) if is_usual else ()

    def label(self, job: Job) -> str:
        """Return what the first system is called."""
        from ringwright.jobs import switch_gains
        from ringwright.jobs.pricing.costs import LIBRARY

        return self.first or (LIBRARY if switch_gains.fabric_costs(job) is not None else "as recorded")


@dataclass(frozen=True)
class Results:
    """Where answers go: a page, the first policy's run, JSON instead of a table."""

    output: Path | None
    trace: Path | None
    force: bool
    json: bool
    arrivals: str | None = None  # by how much later than they could ranks begin each step
    bursts: bool = False  # shown on the terminal too
    gap: str | None = None

    @property
    def holds_bursts(self) -> bool:
        """Whether bursts are asked for, or an answer that always holds them."""
        return self.bursts or self.json or self.output is not None

    def show(self, result: dict[str, Any]) -> int:
        """Print the answers, and write the page if one is asked for."""
        from ringwright.cli import reading
        from ringwright.jobs.job_document import JobSteps
        from ringwright.reports.pages import job_page
        from ringwright.reports.steps import jobs

        ends = all(row.get("declined") is not None for row in result["rows"])
        if self.json:
            reading.print_json(result)
            return EXIT_INFEASIBLE if ends else EXIT_GOOD
        steps = read_json(JobSteps, result)
        jobs.write(steps, sys.stdout, shows_bursts=self.bursts)
        if ends:
            return EXIT_INFEASIBLE
        if self.output:
            reading.write_page(self.output, job_page.page(steps, reading.command_line()), force=self.force)
        return 0


NOTHING = JobOptions()
OF_A_MODEL = (
    "model",
    "gpus",
    "parallel",
    "micro_batches",
    "micro_batch_size",
    "seq",
    "gradients",
    "gpu",
    "recompute",
    "mode",
    "schedule",
    "stages",
    "step_ms",
    "fit",
)


def switch(machine: MachineOptions, ranks: int) -> tuple[MachineOptions, tuple[str, ...]]:
    """Return the machine, a plain switch where none is named, and what is assumed then."""
    if machine.fabric is not None or machine.topology is not None:
        return machine, ()
    named = f"switch:{max(ranks, 2)}"
    return replace(machine, fabric=named), (f"fabric: {named}, for none was named",)
