"""What is asked of the simulator: one collective on one machine, by models or by an engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.calls.arrivals import Arrivals, Asked, arriving
from ringwright.calls.provenance import AskedOf, asked_of
from ringwright.engines.packets.carriage import acts_on_packets
from ringwright.engines.packets.options import PacketOptions
from ringwright.ground.errors import DeclinedError, JobEndsError, NeverArrivesError, UsageError
from ringwright.model.collective import Collective, carried

if TYPE_CHECKING:
    import numpy as np

    from ringwright.calls.asked_faults import AskedFaults
    from ringwright.costs.calibration import Calibration
    from ringwright.costs.probable_time import Probable
    from ringwright.engines.result import Run
    from ringwright.fabrics._congestion import Congestion
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

AUTO = "auto"  # no engine by itself: the one that fits, and what packets add where a fault acts on them


@dataclass(frozen=True)
class SimulationSpec:
    """What is asked of the simulator, all but the algorithms and sizes.

    ``engine`` None: the most probable time of all models. ``healthy``: the fabric before its faults, ``faults`` the lines that
    made ``topology`` of it; ``calibration``: what was put on it.
    """

    op: str
    topology: Topology
    engine: str | None = None
    alpha: str = "pipelined"
    group: Sequence[int] | None = None
    dtype: str = "float32"
    reduce_op: str = "sum"
    root: int = 0
    arrivals: Asked | None = None  # when the ranks come; None: together
    healthy: Topology | None = None
    calibration: Calibration | None = None
    packets: PacketOptions | None = None  # what is asked of the packet engine
    beside: tuple[Congestion, ...] = ()  # what other jobs on the fabric repeat meanwhile
    faults: AskedFaults | None = None
    by_packets: bool = False  # also where nothing acts on packets: beside an answer that follows them

    @property
    def composes(self) -> bool:
        """Whether what packets lose is added to the time without: where no single engine's own time is asked for."""
        return self.engine in (None, AUTO)

    @property
    def asks_engine(self) -> bool:
        """Whether an engine's own time is asked for: one is named, or an option that only engines know."""
        return self.engine is not None or self.alpha != "pipelined" or bool(self.beside)

    @property
    def uncorrected(self) -> bool:
        """Whether it is the usual engine's time that is asked for, with what packets add: what an operation of a job takes."""
        return self.asks_engine and self.composes and not self.beside

    def shows(self, said: Probable) -> bool:
        """Return whether the time of an answer is what is said of it, not that of its run."""
        return bool(said.model) and self.composes

    def run(
        self,
        program: Program,
        on: Topology,
        *,
        late: bool = True,
        seed: int | None = None,
        folded: bool = True,
        calm: bool = False,
    ) -> Run:
        """Return what the engine says of a program on a fabric.

        ``late``: with the arrivals asked about; ``seed``: of losses, another than the one asked about; ``folded`` False: each
        message by itself, where the engine follows messages; ``calm``: by the engine of an answer without losses.
        """
        come = self.come() if late else None
        seconds = None if come is None else come.seconds
        asked = self.packets if seed is None else replace(self.packets or PacketOptions(), seed=seed)
        engine = self.engine or ("packets" if self.needs_packets and not calm else "auto")
        try:
            if self.beside:
                return self._both(program, on, engine, asked)[1]
            return self._alone(program, on, engine, seconds, asked, folded=folded)
        except (NeverArrivesError, JobEndsError) as error:
            from ringwright.calls import job_ends

            raise job_ends.end_of(error, on) from error

    def _alone(
        self,
        program: Program,
        on: Topology,
        engine: str,
        seconds: np.ndarray | None,
        packets: PacketOptions | None,
        *,
        folded: bool,
    ) -> Run:
        from ringwright.engines.choose import simulate

        try:
            return simulate(
                program, on, engine, alpha=self.alpha, arrivals=seconds, packets=packets, fold_symmetry=folded
            )
        except DeclinedError:
            if self.engine is not None or engine == "auto":
                raise
            return simulate(program, on, alpha=self.alpha, arrivals=seconds, fold_symmetry=folded)

    def without_others(self, program: Program, on: Topology) -> Run:
        """Return the run without the other jobs, by the model that has them too."""
        engine = self.engine or ("packets" if self.needs_packets else "auto")
        return self._both(program, on, engine, self.packets)[0]

    def _both(self, program: Program, on: Topology, engine: str, packets: PacketOptions | None) -> tuple[Run, Run]:
        from ringwright.calls.other_jobs import programs
        from ringwright.engines.background_programs import alone_and_beside

        if self.arrivals is not None:
            raise UsageError(
                "late ranks beside another job are not simulated", remedy="--arrivals or --beside, not both"
            )
        return alone_and_beside(program, programs(self.beside, on), on, engine, alpha=self.alpha, packets=packets)

    @cached_property
    def needs_packets(self) -> bool:
        """Whether the fabric has what acts on packets alone: losses, bit errors or a buffer between hosts."""
        return self.by_packets or acts_on_packets(self.topology)

    def lasting(self, time_s: float) -> SimulationSpec:
        """Return the question with outages for as long as an answer of ``time_s``; itself where they last so long."""
        if self.faults is None or self.healthy is None or (longer := self.faults.lasting(time_s)) is self.faults:
            return self
        return replace(self, topology=longer.on(self.healthy), faults=longer)

    def with_faults(self, faults: AskedFaults | None) -> SimulationSpec:
        """Return the question with other faults, or none, answered by the same engine."""
        healthy = self.topology if self.healthy is None else self.healthy
        on = healthy if faults is None else faults.on(healthy)
        return replace(self, topology=on, healthy=healthy, faults=faults, by_packets=self.needs_packets)

    def asked(self, algorithms: Iterable[str] = ()) -> AskedOf:
        """Return what is asked, as every answer says it."""
        return asked_of(
            self.topology,
            algorithms,
            beside=[other.text for other in self.beside],
            seed=None if self.packets is None else self.packets.seed,
        )

    def come(self) -> Arrivals | None:
        """Return when the ranks of the group come, None where they come together; UsageError for what says not when."""
        return None if self.arrivals is None else arriving(self.arrivals, self.collective(0).p)

    def collective(self, size_bytes: int) -> Collective:
        """Return the collective at one size."""
        group = range(self.topology.n_ranks) if self.group is None else self.group
        beyond = [rank for rank in (group if self.group is not None else ()) if rank >= self.topology.n_ranks]
        if beyond:
            raise UsageError(
                f"rank {beyond[0]} is not on {self.topology.name}", remedy=f"0 to {self.topology.n_ranks - 1}"
            )
        return Collective(self.op, group, carried(self.op, [size_bytes])[0], self.dtype, self.reduce_op, self.root)
