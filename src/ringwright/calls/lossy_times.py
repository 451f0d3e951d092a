"""What a program takes where packets are lost: the engine's time without losses, and what its packets add to that.

An answer that followed packets alone would differ from the healthy one by headers, queues and windows that are there without any
fault. So losses, bit errors and small buffers add the difference of two runs by packets, with them and without, to the very time
that a healthy fabric is said to take: a fault that does nothing adds nothing. A job's operations are timed the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.calls import loss_seeds
from ringwright.engines.packets.carriage import acts_on_packets, without_losses
from ringwright.engines.packets.operation_losses import FollowedPackets
from ringwright.engines.pools.of_program import mends_losses
from ringwright.engines.switch_slots import is_lossy

if TYPE_CHECKING:
    from ringwright.calls.arguments import Algorithm
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.engines.packets.loss_penalty import Added
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

LEFT_OUT = "headers, queues and windows of packets where nothing is lost"
Seconds = tuple[float, float, float, float]  # at 5, 50 and 95 %, and the mean


@dataclass(frozen=True)
class LossyTime:
    """A program's seconds; ``calm``: the fabric without what packets alone meet; ``run``: its run there, by the usual engine.

    ``is_drawn``: losses are, and the mean may be another than the middle.
    """

    calm: Topology
    run: Run
    times_s: Seconds
    is_drawn: bool


class LossyTimes:
    """The times of one question's programs; what packets add is found once for each size."""

    def __init__(self, question: SimulationSpec) -> None:
        self._question, self._packets = question, FollowedPackets()

    def of(self, algorithm: Algorithm, program: Program, run: Run, on: Topology) -> LossyTime:
        """Return the seconds of the program that an algorithm made and an engine ran on a fabric.

        Streams that mend losses themselves are timed by the draws of their own packets.
        """
        if run.packets is not None and mends_losses(program):
            low, middle, high = loss_seeds.times_s(self._question, program, run, on)
            return LossyTime(without_losses(on), run, (low, middle, high, middle), loss_seeds.seeds_of(run, on) > 1)
        more = self._added(algorithm, program, on)
        calm = on if more is None else without_losses(on)
        if run.packets is not None or calm is not on:
            run = self._question.run(program, calm, calm=True)
        if more is None:
            return LossyTime(calm, run, (run.time_s,) * 4, is_drawn=False)
        added_s = (more.low_s, more.middle_s, more.high_s, more.seconds)
        low, middle, high, mean = (run.time_s + each for each in added_s)
        return LossyTime(calm, run, (low, middle, high, mean), is_lossy(on) and more.seconds > 0)

    def _added(self, algorithm: Algorithm, program: Program, on: Topology) -> Added | None:
        """Return what packets add; None where nothing acts on them, one engine is asked for, or they cannot be followed."""
        question = self._question
        if not acts_on_packets(on) or not (question.composes or question.engine == "packets"):
            return None

        def made(size_bytes: int) -> list[Program]:
            return [algorithm(question.collective(size_bytes), question.topology)]

        who = algorithm.spelling or id(algorithm), on is question.topology
        return self._packets.at(program.collective.op, who, program.collective.size_bytes, made, on)
