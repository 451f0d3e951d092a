"""What is told of the least network besides: bursts of its ports, buffers, one failed optic, and which link buys how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.advise.provision.buffers import LeastBuffer, Queued, least_buffer
from ringwright.advise.provision.document import BufferRow, BurstRow, HeadroomRow, QueuedRow, SensitivityRow
from ringwright.advise.provision.network import NetworkTiers
from ringwright.advise.provision.optics import headroom
from ringwright.advise.provision.sensitivity import sensitivity
from ringwright.advise.provision.sent import transfers
from ringwright.analysis.traffic.bursts import bursts_of
from ringwright.engines.packets.carriage import spoken
from ringwright.jobs import study
from ringwright.jobs.pricing.costs import FabricCosts, on_fabric

if TYPE_CHECKING:
    from ringwright.advise.provision.sized import SizedNetwork


def carrier(sized: SizedNetwork) -> FabricCosts:
    """Return the costs on the least network; a recording that was not changed has measured ones, and gets those of the fabric."""
    costs = sized.result.costs
    return costs if isinstance(costs, FabricCosts) else on_fabric(sized.machine, sized.result.workload)


def burst_row(sized: SizedNetwork, costs: FabricCosts) -> BurstRow:
    """Return the bursts of the ports in one step on the least network."""
    sent = transfers(sized.result, costs, NetworkTiers(sized.machine))
    last = max(sent.step_s, float(sent.end_s.max(initial=0.0)))
    told = bursts_of(sent.nic, sent.start_s, sent.size_bytes, end_s=sent.end_s, window_s=(0.0, last))
    return BurstRow(
        size_bytes_p50=told["size_bytes_p50"],
        size_bytes_p95=told["size_bytes_p95"],
        size_bytes_p99=told["size_bytes_p99"],
        gap_us_p50=told["gap_us_p50"],
        duty=told["duty"],
        count=told["count"],
        bytes_per_nic=float(sent.size_bytes.sum()) / max(1, len(set(sent.nic.tolist()))),
        gap_rule=told["gap_rule"],
    )


def buffer_row(sized: SizedNetwork, costs: FabricCosts) -> BufferRow:
    """Return the least buffer of a switch's ports, on the least network."""
    job = sized.job.at(sized.machine)

    def with_queues(factors: Mapping[str, float]) -> float:
        sized.simulated += 1
        return study.answer(replace(job, costs=Queued(job.costs, factors)), sized.job.policy).step_s

    least = least_buffer(sized.result, costs, sized.most_s, with_queues, sized.step_s)
    return _told(least, spoken(sized.machine).name)


def headroom_row(sized: SizedNetwork) -> HeadroomRow:
    """Return what one failed optic costs, and the rate of ports that bears it."""
    tiers = sized.of_plan(sized.plan)
    told = headroom(tiers, sized.plan, sized.job.ranks, sized.most_s, sized.step_s)
    return HeadroomRow(
        fault=told.fault,
        keeps=told.keeps,
        step_us=told.step_us,
        given_us=told.given_us,
        nic_gbs=told.nic_gbs,
        factor=told.factor,
    )


def sensitivity_rows(sized: SizedNetwork) -> list[SensitivityRow]:
    """Return by how much the step changes with each class of links, on the least network."""
    rows = sensitivity(sized.machine, sized.result.step_s, sized.step_s)
    return [SensitivityRow(each.links, each.change, each.slower, each.faster) for each in rows]


def _told(least: LeastBuffer, transport: str) -> BufferRow:
    at, below = least.at, least.below
    return BufferRow(
        buffer_bytes=least.buffer_bytes,
        transport=transport,
        step_us=least.step_us,
        smaller_bytes=None if below is None or least.buffer_bytes is None else below.buffer_bytes,
        smaller_step_us=least.smaller_us,
        smaller_why=least.smaller_why,
        drops=None if at is None else at.drops,
        pauses=None if at is None else at.pauses,
        smaller_drops=None if below is None else below.drops,
        smaller_pauses=None if below is None else below.pauses,
        operations=[
            QueuedRow(each.role, each.op, each.size_bytes, each.sent_bytes, each.groups) for each in least.bursts
        ],
        why=least.why,
    )
