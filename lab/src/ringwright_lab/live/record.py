"""What one rank of a schedule has measured, as the nouns that everything else reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ringwright.model.trace import Trace
from ringwright.model.workload import Workload
from ringwright_lab.live import profile
from ringwright_lab.live.exchange import GradientExchange
from ringwright_lab.live.measuring import StepTimer
from ringwright_lab.live.plan import agreement
from ringwright_lab.live.start import Team


class Record:
    """A rank's steps by its own clock, and its pieces; ``named`` are the layers and their parameters, as far as seen."""

    def __init__(self, name: str, team: Team, clock: StepTimer, exchange: GradientExchange) -> None:
        self._name, self._team, self._clock, self._exchange = name, team, clock, exchange
        self.named: Mapping[str, Sequence[str]] = {}

    def workload(self) -> Workload:
        """Return the steps as a Workload, median times by layer, without a policy."""
        measured = self._clock.steady()
        layers, backward = profile.layers(self.named, measured, self._team.described)
        return profile.workload(
            self._name,
            layers,
            backward,
            self._team.described,
            self._team.world,
            gap_s=profile.gap_s(measured),
            assumptions=(f"times measured on rank {self._team.rank}, median of {len(measured)} steps",),
        )

    def costs(self) -> profile.LinkTable:
        """Return what pieces of each size took."""
        return profile.costs(self._exchange.sent)

    def plain(self) -> dict[str, Any]:
        """Return what ``workload()`` and ``costs()`` are made of as plain data: layers, order, parameters, times, link."""
        measured = self._clock.steady()
        layers, backward = profile.layers(self.named, measured, self._team.described)
        return {
            "layers": [asdict(each) for each in layers],
            "backward": backward,
            "gap_s": profile.gap_s(measured),
            "parameters": [asdict(each) for each in self._team.described.values()],
            "link": asdict(self.costs()),
        }

    def trace(self) -> Trace:
        """Return the last steps as a Trace."""
        plan = self._exchange.plan
        announced_s = {
            (step, plan.operations[plan.units[at].operation].name): when_s
            for (step, at), when_s in self._exchange.announced_s.items()
            if at < len(plan.units)
        }
        label = f"{self._name}, policy {plan.workload.policy.label}, order by {agreement(plan.workload)}"
        return profile.trace(
            self._team.rank, self._team.world, self._clock.measured, self._exchange.sent, announced_s, label
        )
