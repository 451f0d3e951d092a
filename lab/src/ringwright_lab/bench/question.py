"""The specification of a benchmark, and the names of its contenders.

``openmpi``, ``mpich``, ``gloo`` and ``nccl`` are libraries, doing the collective by themselves. ``ringwright`` is our program
over shared memory, or over sockets in a lab; ``ringwright@gloo`` is our program over that library's messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from ringwright.execute.executors import Executor, executor, executors
from ringwright.execute.switched import runner
from ringwright.execute.switched.terms import SwitchTerms, is_switched, read_terms
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective

LIBRARIES = ("openmpi", "mpich", "gloo", "nccl")
OURS = "ringwright"


@dataclass(frozen=True)
class Candidate:
    """A backend as it was named: a library, or our program on an executor."""

    name: str
    executor: Executor
    native: bool


@dataclass(frozen=True)
class BenchSpec:
    """A benchmark's settings. ``lab``: a fabric to build of namespaces; without one the ranks communicate within this machine."""

    op: str
    ranks: int
    sizes: Sequence[int]
    backends: Sequence[str] = (OURS,)
    algorithms: Sequence[str] = ("ring",)
    dtype: str = "float32"
    reduce_op: str = "sum"
    root: int = 0
    rounds: int = 10
    warmup: int = 2
    lab: str | None = None
    faults: Sequence[str] = ()
    tcp: str = "reno"
    seed: int = 0
    timeout_s: float = 60.0
    record: bool = False

    def collective(self, size_bytes: int) -> Collective:
        """Return the collective at one size."""
        return Collective(self.op, range(self.ranks), size_bytes, self.dtype, self.reduce_op, self.root)

    @cached_property
    def through_switch(self) -> dict[str, SwitchTerms]:
        """The algorithms that a switch carries out, as they are spelled; UsageError where one cannot."""
        return _switched(self)

    def candidates(self) -> list[Candidate]:
        """Return the contenders; UsageError for an unknown name, or for one that cannot run here."""
        return [self._candidate(name) for name in dict.fromkeys(self.backends)]

    def _candidate(self, name: str) -> Candidate:
        if name in LIBRARIES:
            return Candidate(name, executor(name), native=True)
        own, _, over = name.partition("@")
        if own != OURS or (over and over not in executors()):
            own = ", ".join(f"{OURS}@{each}" for each in executors())
            raise UsageError(f"no backend '{name}'", remedy=f"one of: {', '.join(LIBRARIES)}, {OURS}, {own}")
        if self.lab and over == "memory":
            raise UsageError("ranks in a lab do not share memory", remedy=f"--backend {OURS}")
        return Candidate(name, executor(over or ("sockets" if self.lab else "memory")), native=False)


def _switched(question: BenchSpec) -> dict[str, SwitchTerms]:
    """Return the spellings of a question that go through a switch, each a job of its own; UsageError where one cannot."""
    spelled = [each for each in dict.fromkeys(question.algorithms) if is_switched(each)]
    reason = runner.declines(question.op, question.reduce_op, question.dtype) if spelled else ""
    if reason:
        raise UsageError(reason, where=spelled[0], remedy="bench all-reduce --dtype float32")
    asked = {
        each: msgspec.structs.replace(read_terms(each, question.ranks), job=job) for job, each in enumerate(spelled)
    }
    inside = [each for each, terms in asked.items() if terms.xdp]
    if inside and question.lab is None:
        raise UsageError(
            "the kernel adds on the ports of a lab's switches, and this machine's loopback has none",
            where=inside[0],
            remedy="--lab switch:4,rate=100Mb/s",
        )
    return asked
