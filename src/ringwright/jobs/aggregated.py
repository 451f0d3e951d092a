"""What a job gains by switches that add: its step by each system, and operation by operation what of that reaches the step.

A step that hides its communication gains nothing by a faster network, whatever a benchmark of collectives says: so each
operation is told with what of it is exposed, by the best system of hosts alone and by the best that adds in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.algorithms.switch_trees import network_switches
from ringwright.ground import steps
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.jobs.explained.exposed_operations import OperationKey, OperationsAlike, exposed_operations
from ringwright.jobs.explained.obstacles import ADDED, HALVES, Obstacle, obstacles
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.jobs.recorded import Changed
from ringwright.jobs.study import Job, PolicyResult, answer
from ringwright.model.workload import SHIFTS

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

SYSTEMS = ("ring", "double-binary-tree", "nvls-tree", "sharp", "switchml")
IN_NETWORK = ("sharp", "switchml")
PLAIN = ", plain switches"
LEAST_US = 0.1  # exposed time of a step below which an operation counts as hidden
ALONE = ("send-recv", "copy", *SHIFTS)  # from one rank to another: there is nothing to add


@dataclass(frozen=True, slots=True)
class SystemStep:
    """A step with one system for the collectives, in us, with the interval of such steps on GPUs (null: none were measured).

    ``in_network`` says whether the network's switches add for it; ``declined`` why it has no step.
    """

    system: str
    step_us: float | None
    step_us_p05: float | None
    step_us_p50: float | None
    step_us_p95: float | None
    exposed_comm_us: float | None
    in_network: bool | None
    declined: str | None


@dataclass(frozen=True, slots=True)
class OperationGain:
    """Operations alike, and what a step gains by adding them in the network; ``*_us`` alone, ``exposed_*_us`` of a step.

    ``verdict``: gains, hidden, as quick, in line or not added; ``why`` says it in a sentence.
    """

    names: list[str]
    role: str
    op: str
    dtype: str
    size_bytes: int
    ranks: int
    count: float
    hosts_us: float
    network_us: float | None
    exposed_hosts_us: float
    exposed_network_us: float | None
    gain_us: float
    verdict: str
    why: str


@dataclass(frozen=True, slots=True)
class JobInNetwork:
    """A job by each system; ``hosts`` and ``network`` name the best of hosts alone and the best that adds in the network.

    ``saved_us`` of a step with its interval, null where one of both is missing.
    """

    policy: str
    systems: list[SystemStep]
    hosts: str | None
    network: str | None
    saved_us: float | None
    saved_us_p05: float | None
    saved_us_p95: float | None
    operations: list[OperationGain]
    obstacles: list[Obstacle]


@dataclass(frozen=True)
class SteppedSystem:
    """A system's step: its row, its operations and their costs."""

    row: SystemStep
    operations: Mapping[OperationKey, OperationsAlike]
    costs: FabricCosts | None

    @property
    def step_us(self) -> float:
        """The simulated step."""
        return self.row.step_us or 0.0

    def adds(self, key: OperationKey) -> bool:
        """Return whether the network's switches add for operations of a kind."""
        mine = self.operations.get(key)
        return mine is not None and self.costs is not None and added_in_network(self.costs, key, mine)


def adds_between_hosts(job: Job) -> bool:
    """Return whether switches between hosts add, on the machine that a job's operations are timed on."""
    costs = fabric_costs(job)
    return costs is not None and switches_add(costs.topology)


def switches_add(topology: Topology) -> bool:
    """Return whether a machine has switches between hosts that add."""
    return bool(network_switches(topology))


def fabric_costs(job: Job) -> FabricCosts | None:
    """Return the costs on a fabric, of a job that has any."""
    costs = job.costs.after if isinstance(job.costs, Changed) else job.costs
    return costs if isinstance(costs, FabricCosts) else None


def stepped(job: Job, system: str, result: PolicyResult) -> SteppedSystem:
    """Return the step of a system as it is compared; ``result``: the run of the job, which may be let go afterwards."""
    costs, operations = fabric_costs(job), exposed_operations(result)
    likely = result.probable
    added = [key for key, mine in operations.items() if costs is not None and added_in_network(costs, key, mine)]
    asked = [(key, mine) for key, mine in operations.items() if key.op not in ALONE]
    known = [] if costs is None or not costs.algorithms else [refusal(costs, *each) for each in asked]
    left = [why.what for why in known if why is not None]
    own = not left or len(left) < len(asked)
    row = SystemStep(
        system=system,
        step_us=result.step_s * 1e6 if own else None,
        step_us_p05=likely.p05_us if likely and own else None,
        step_us_p50=likely.p50_us if likely and own else None,
        step_us_p95=likely.p95_us if likely and own else None,
        exposed_comm_us=result.exposed_s * 1e6 if own else None,
        in_network=bool(added) and own if costs is not None else None,
        declined=None if own else left[0],
    )
    return SteppedSystem(row, operations, costs)


def compare_systems(
    first: SteppedSystem,
    policy: str,
    systems: Sequence[str],
    by: Callable[[str, bool], Job],
    progress: steps.Advance | None = None,
) -> JobInNetwork:
    """Return what ``in_network`` of a ``ringwright.simulate-job/1`` object holds: systems, operations and obstacles.

    ``first`` was simulated already, by what was asked for or by the library; ``by`` makes the same job with another system, on
    the same machine or, where it is told so, on one whose switches add nothing.
    """
    alone = [(first.row.system, True)] if first.row.in_network else []
    tried = [first]
    for system, plain in steps.told([*alone, *((each, False) for each in systems)], progress, _label):
        label = _label((system, plain))
        try:
            job = by(system, plain)
            tried.append(stepped(job, label, answer(job, policy)))
        except RingwrightError as error:
            tried.append(SteppedSystem(_declined(label, error), {}, None))
    able = [each for each in tried if each.row.declined is None]
    hosts = min((each for each in able if not each.row.in_network), key=_step, default=None)
    network = min((each for each in able if each.row.in_network), key=_step, default=None)
    saved = None if hosts is None or network is None else hosts.step_us - network.step_us
    return JobInNetwork(
        policy=policy,
        systems=[each.row for each in tried],
        hosts=hosts.row.system if hosts else None,
        network=network.row.system if network else None,
        saved_us=saved,
        saved_us_p05=_scaled(saved, hosts, None if hosts is None else hosts.row.step_us_p05),
        saved_us_p95=_scaled(saved, hosts, None if hosts is None else hosts.row.step_us_p95),
        operations=[] if hosts is None else gains(hosts, network, tried),
        obstacles=_obstacles(tried, network),
    )


def _label(asked: tuple[str, bool]) -> str:
    """Return what a row is called: the system, and that the switches add nothing for it where that is so."""
    system, plain = asked
    return f"{system}{PLAIN}" if plain else system


def gains(
    hosts: SteppedSystem, network: SteppedSystem | None, tried: Sequence[SteppedSystem] = ()
) -> list[OperationGain]:
    """Return what each kind of operations gains, the most first; ``tried``: all systems, whose refusals say why not."""
    told = []
    for key, before in hosts.operations.items():
        after = network.operations.get(key) if network is not None else None
        if network is None or after is None or not network.adds(key):
            gain_us, verdict, why = 0.0, "not added", _not_added(key, before, network, tried)
        else:
            gain_us = (before.exposed_s - after.exposed_s) * 1e6
            verdict, why = _judged(before, after, gain_us)
        told.append(
            OperationGain(
                names=list(before.names),
                role=key.role,
                op=key.op,
                dtype=before.dtype,
                size_bytes=key.size_bytes,
                ranks=key.ranks,
                count=before.count,
                hosts_us=before.alone_s * 1e6,
                network_us=None if after is None else after.alone_s * 1e6,
                exposed_hosts_us=before.exposed_s * 1e6,
                exposed_network_us=None if after is None else after.exposed_s * 1e6,
                gain_us=gain_us,
                verdict=verdict,
                why=why,
            )
        )
    return sorted(told, key=lambda each: (each.verdict != "gains", -each.gain_us, -each.exposed_hosts_us))


def _judged(before: OperationsAlike, after: OperationsAlike, gain_us: float) -> tuple[str, str]:
    """Return the verdict on operations that the network adds, and the sentence that says why."""
    if before.exposed_s * 1e6 < LEAST_US:
        return "hidden", "none of it is exposed: compute hides it by hosts alone"
    if after.alone_s >= before.alone_s:
        return "as quick", "by hosts alone one takes no longer at this size"
    if gain_us < LEAST_US:
        return "in line", "one is quicker in the network, but what is exposed waits for others"
    return "gains", f"{gain_us:,.1f} us less of it is exposed in a step"


def _not_added(
    key: OperationKey, mine: OperationsAlike, network: SteppedSystem | None, tried: Sequence[SteppedSystem]
) -> str:
    """Say why the network adds nothing for an operation."""
    if key.op in ALONE:
        return "from one rank to one other: there is nothing to add"
    if key.op == "all-to-all":
        return "every rank gets other data: there is nothing to add"
    asked = [network] if network is not None else []
    asked += sorted((each for each in tried if each is not network), key=_in_network_first)
    refused = (refusal(each.costs, key, mine) for each in asked if each.costs is not None and each.costs.algorithms)
    why = next((each.what for each in refused if each is not None), None)
    if why is None:
        return "the system does it among hosts at this size" if network else "no system that was tried adds it"
    return f"{why}; in the network it would take no less time" if key.op in HALVES else why


def _in_network_first(each: SteppedSystem) -> bool:
    return each.row.system.partition(":")[0] not in IN_NETWORK


def refusal(costs: FabricCosts, key: OperationKey, mine: OperationsAlike) -> UsageError | None:
    """Return why a system left operations of a kind to the library; None where it did not."""
    return None if key.op in ALONE else costs.refusal(mine.first.asked, mine.group)


def added_in_network(costs: FabricCosts, key: OperationKey, mine: OperationsAlike) -> bool:
    """Return whether switches between hosts add for operations of a kind."""
    between = network_switches(costs.topology)
    if not between or key.op in ALONE:
        return False
    programs = costs.own_programs(mine.first.asked, key.size_bytes, mine.group)
    return any(not between.isdisjoint(each.aggregators) for each in programs)


def _obstacles(tried: Sequence[SteppedSystem], network: SteppedSystem | None) -> list[Obstacle]:
    known = network or next((each for each in tried if each.costs is not None), None)
    if known is None or known.costs is None:
        return []
    hosts = [each for each in tried if not each.row.in_network and each.row.declined is None]
    reasons = [
        why
        for each in sorted(tried, key=_in_network_first)
        if each.costs is not None and each.costs.algorithms
        for key, mine in each.operations.items()
        if key.op in ADDED and (why := refusal(each.costs, key, mine)) is not None
    ]
    quickest = {
        key: min((each.operations[key].alone_s for each in hosts if key in each.operations), default=None)
        for key in known.operations
    }
    return obstacles(known.costs, known.operations, quickest if network else {}, reasons)


def _declined(system: str, error: RingwrightError) -> SystemStep:
    return SystemStep(
        system=system,
        step_us=None,
        step_us_p05=None,
        step_us_p50=None,
        step_us_p95=None,
        exposed_comm_us=None,
        in_network=None,
        declined=error.what,
    )


def _step(each: SteppedSystem) -> tuple[int, float]:
    """Return by what systems are ordered: the step in ns, and of steps alike, all hidden, what the operations take."""
    return round(each.step_us * 1e3), sum(mine.count * mine.alone_s for mine in each.operations.values())


def _scaled(saved_us: float | None, of: SteppedSystem | None, likely: float | None) -> float | None:
    """Return what is saved where such steps take as much longer, with either system alike."""
    return None if saved_us is None or likely is None or of is None else saved_us * likely / of.step_us


def competitors(first: str) -> tuple[str, ...]:
    """Return with whom a job is compared where nobody is named, on a machine whose switches add."""
    return tuple(each for each in SYSTEMS if each != first)


def plain_switches(topology: Topology) -> Topology:
    """Return a machine whose switches between hosts add nothing; those inside hosts add as before."""
    between = network_switches(topology)
    kept = {node: able for node, able in topology.aggregators.items() if node not in between}
    return replace(topology, aggregators=kept)
