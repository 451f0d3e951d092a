"""One workload on one fabric: the search for its least network, and its step there, at the edge and without a limit."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.advise.provision import search
from ringwright.advise.provision.document import NetworkRow, ProvisionEdge
from ringwright.advise.provision.network import NetworkPlan, NetworkTiers
from ringwright.advise.provision.variants import with_fewer_nics
from ringwright.ground.errors import InfeasibleError
from ringwright.jobs import study
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.jobs.recorded import Changed

if TYPE_CHECKING:
    from ringwright.advise.provision.asked import SizedJob
    from ringwright.advise.provision.prices import Prices
    from ringwright.costs.probable import Probable
    from ringwright.jobs.study import PolicyResult
    from ringwright.model.topology import Topology

UNLIMITED = 1e3  # times the rate of every link between hosts: bytes take no time that counts there
NICS, NIC = "NICs a GPU", "nic"
MOST_NETWORKS = 16  # whose times are remembered


class SizedNetwork:
    """The least network of a fabric for a job; every step that was simulated is remembered."""

    def __init__(self, job: SizedJob, topology: Topology, within: float, prices: Prices | None) -> None:
        self.job, self.topology, self.prices = job, topology, prices
        self.tiers = NetworkTiers(topology)
        listed = [NetworkTiers(each) for each in with_fewer_nics(topology)]
        self._by_nics = {each.given.nics_per_gpu: each for each in listed}
        self.simulated = 0
        self._known: dict[NetworkPlan, float] = {}
        self._timed = HealthyTimes()
        as_given = self._answer(self.of_plan(self.tiers.given).sized(self.tiers.given))
        self.reference_s = self._known[self.tiers.given] = as_given.step_s
        self.reference: Probable | None = as_given.probable
        if not self.reference_s:
            raise InfeasibleError(
                "its step takes no time: as far as is known, it computes nothing and sends nothing over a link",
                where=f"{job.workload} on {topology.name}",
                remedy="name the recordings of all its ranks; ringwright summary says how many were read",
            )
        self.most_s = self.reference_s * (1 + within)

    def of_plan(self, plan: NetworkPlan) -> NetworkTiers:
        """Return the fabric with as many NICs as a plan has, at the rates of the fabric as it is."""
        return self._by_nics[plan.nics_per_gpu]

    def own(self, plan: NetworkPlan) -> NetworkPlan:
        """Return a plan without the tiers that a fabric with so few NICs has not: ports of one rail may need no spine."""
        ratios = dict(zip(self.tiers.tiers, plan.oversubscription, strict=True))
        return replace(plan, oversubscription=tuple(ratios[name] for name in self.of_plan(plan).tiers))

    def step_s(self, topology: Topology) -> float:
        """Return the seconds of a step on a machine."""
        return self._answer(topology).step_s

    def _answer(self, topology: Topology) -> PolicyResult:
        self.simulated += 1
        job = self.job.at(topology)
        self._timed.share(topology, job.costs)
        return study.answer(job, self.job.policy)

    def _at(self, plan: NetworkPlan) -> float:
        if plan not in self._known:
            self._known[plan] = self.step_s(self.of_plan(plan).sized(plan))
        return self._known[plan]

    # ---------------------------------------------------------------------------------------------------------- search
    @cached_property
    def _axes(self) -> list[list[float]]:
        """What may be chosen, from the network as it is to smaller ones: NICs a GPU, rates of ports, ratios of each tier."""
        own = self.tiers.given
        rates = [each for each in self.tiers.nic_rates() if each == own.nic_rate or self._is_priced(each)]
        return [list(self._by_nics), rates, *(self.tiers.ratios(tier) for tier in range(len(self.tiers.tiers)))]

    def _is_priced(self, rate: float) -> bool:
        return self.prices is None or self.cost(replace(self.tiers.given, nic_rate=rate)) is not None

    def _plan(self, point: search.Point) -> NetworkPlan:
        nics, rate, *ratios = (axis[at] for axis, at in zip(self._axes, point, strict=True))
        return self.own(NetworkPlan(nics, rate, tuple(ratios)))

    @cached_property
    def _point(self) -> search.Point:
        return search.least(
            [len(axis) for axis in self._axes],
            lambda point: self._at(self._plan(point)) <= self.most_s,
            lambda point: self._size(self._plan(point)),
        )

    def _size(self, plan: NetworkPlan) -> float:
        """Return what is made least: what a network costs, where it has prices, else the Gb/s of its cables."""
        cost = self.cost(plan)
        if self.prices is None:
            return self.of_plan(plan).capacity_gbits(plan)
        return float("inf") if cost is None else cost

    def cost(self, plan: NetworkPlan) -> float | None:
        """Return what a network costs; None without prices, and where its ports have none."""
        return None if self.prices is None else self.prices.cost(self.of_plan(plan).cabling(plan), plan.nic_rate)

    @cached_property
    def plan(self) -> NetworkPlan:
        """The least network that keeps the step."""
        return self._plan(self._point)

    @cached_property
    def machine(self) -> Topology:
        """The fabric with the least network."""
        return self.of_plan(self.plan).sized(self.plan)

    @cached_property
    def result(self) -> PolicyResult:
        """The step on the least network, simulated once more by itself."""
        again = self._answer(self.machine)
        if again.step_s > self.most_s:
            raise InfeasibleError(
                f"the step on the least network took {self._known[self.plan]:.6g} s, and {again.step_s:.6g} s once more",
                where=f"{self.job.workload} on {self.topology.name}",
                remedy="report this: a simulation gives one answer",
            )
        return again

    def network(self, plan: NetworkPlan) -> NetworkRow:
        """Return a network as figures."""
        return NetworkRow(
            nics_per_gpu=plan.nics_per_gpu,
            nic_gbs=plan.nic_rate / 1e9,
            oversubscription=dict(zip(self.of_plan(plan).tiers, plan.oversubscription, strict=True)),
            cable_gbits=round(self.of_plan(plan).capacity_gbits(plan), 3),
            cost=self.cost(plan),
        )

    def edges(self) -> list[ProvisionEdge]:
        """Return for each axis the network that is one step smaller, and its step."""
        smaller = dict(search.below(self._point, [len(axis) for axis in self._axes]))
        rows: list[ProvisionEdge] = []
        there = (NICS, NIC, *self.of_plan(self.plan).tiers)
        for axis, name in enumerate((NICS, NIC, *self.tiers.tiers)):
            if name not in there:
                continue
            if axis not in smaller:
                if name != NICS or len(self._by_nics) > 1:
                    rows.append(ProvisionEdge(name, None, None, keeps=False))
                continue
            value, taken = self._axes[axis][smaller[axis][axis]], self._at(self._plan(smaller[axis]))
            told = value / 1e9 if name == NIC else value
            rows.append(ProvisionEdge(name, told, taken * 1e6, keeps=taken <= self.most_s))
        return rows

    def unlimited_us(self) -> float:
        """Return the step where bytes between hosts take a thousandth of their time, us: what more network could buy at most."""
        network = {self.topology.classes[each] for each in self.topology.link_class[self.tiers.between].tolist()}
        return self.step_s(self.tiers.scaled(dict.fromkeys(network, UNLIMITED))) * 1e6

    def said(self) -> list[str]:
        """Return what the job takes for granted of its device and its fabric."""
        return [each for each in self.job.at(self.machine).assumptions if each.startswith(("device", "fabric"))]


class HealthyTimes:
    """What healthy groups take on the networks that were simulated last, for the same networks with a fault."""

    def __init__(self) -> None:
        self._costs: dict[tuple[int, bytes], FabricCosts] = {}

    def share(self, topology: Topology, costs: object) -> None:
        """Give costs on a network with faults what is known of it without; remember those of one without."""
        mine = costs.after if isinstance(costs, Changed) else costs
        if not isinstance(mine, FabricCosts):
            return
        network = (topology.n_links, topology.rate.tobytes())
        if not topology.faults:
            self._costs[network] = mine
            while len(self._costs) > MOST_NETWORKS:
                del self._costs[next(iter(self._costs))]
        elif network in self._costs:
            known = self._costs[network]
            healthy = {key: each for key, each in known.met.timed.items() if all(one.healthy for one in key[2])}
            mine.met.timed.update(healthy)
            mine.met.beside.update(known.met.beside)
