"""What is asked of synthesis, and the programs that answer it: by each method, found now or kept from before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.algorithms.searching import SHORTEST_S
from ringwright.costs.link_models import ALPHA_OF, named
from ringwright.ground.errors import UsageError
from ringwright.ground.version import VERSION
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.search import program_cache
from ringwright.search.proof import is_right

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

BEST = "best"
NO_SEARCH = ("gc3",)  # systems of the room that hold what people wrote
USUAL = "usual"
INSTANT = (
    "forest",
    "flow-all-to-all",
    "expand",
)  # in this order: the next one where those before are not near the bound


@dataclass(frozen=True)
class SynthesisSpec:
    """One collective on one machine, and how it is to be searched; ``healthy`` is the machine without its faults."""

    op: str
    topology: Topology
    group: Sequence[int] | None = None
    root: int = 0
    dtype: str = "float32"
    budget_s: float | None = None
    link_model: str = "pipelined"
    seed: int = 0
    fresh: bool = False
    healthy: Topology | None = None

    def __post_init__(self) -> None:
        """Give the link model its name; raise UsageError for one that is none, and for a budget too short to search in."""
        object.__setattr__(self, "link_model", named(self.link_model))
        if self.budget_s is not None and self.budget_s < SHORTEST_S:
            raise UsageError(f"nothing is searched in {self.budget_s:g} s", remedy="--budget 1ms or more, such as 10s")

    @property
    def alpha(self) -> str:
        """What engines and bounds call the link model."""
        return ALPHA_OF[self.link_model]

    def collective(self, size_bytes: int) -> Collective:
        """Return the collective at a size."""
        group = range(self.topology.n_ranks) if self.group is None else self.group
        return Collective(self.op, group, size_bytes, self.dtype, root=self.root)


@dataclass(frozen=True)
class FoundProgram:
    """A program, the seconds that finding it took, whether it is right (None: not run), and whether it was kept from before.

    ``packed`` is it as it was kept; ``time_s`` and ``engine`` are what it takes and who says so (None, empty: not asked).
    """

    method: str
    program: Program
    seconds: float
    verified: bool | None
    was_kept: bool = False
    packed: bytes | None = None
    time_s: float | None = None
    engine: str = ""


def _no_method(slug: str, searching: list[str]) -> UsageError:
    remedy = f"--method, one of: {', '.join([*searching, USUAL, BEST])}"
    remedy = "a colon before each knob: sccl:chunks=1:steps=2" if "=" in slug else remedy
    return UsageError(f"'{slug}' is no method of synthesis", remedy=remedy)


def methods(op: str, asked: str) -> list[str]:
    """Return the methods that are meant: those named, separated by commas; with ``best`` all that search for an operation.

    ``usual``: those that answer at once, and all where none of them does the operation.
    Raises UsageError for a name that is none, or one that does not do the operation.
    """
    searching = [each for each in registry.systems() if each.kind == "synthesis"]
    able = [each.slug for each in searching if op in each.ops]
    if asked in (BEST, USUAL):
        if not able:
            raise UsageError(f"nothing searches for {op}", remedy="ringwright list algorithms")
        instant = [each for each in INSTANT if each in able and asked == USUAL]
        return instant or [each for each in able if each not in NO_SEARCH] or able
    chosen = list(dict.fromkeys(filter(None, map(str.strip, asked.split(",")))))
    for spelling in chosen:
        slug = spelling.partition(":")[0].partition("@")[0]
        if slug not in {each.slug for each in searching}:
            raise _no_method(slug, [each.slug for each in searching])
        if slug not in able:
            raise UsageError(f"{slug} does no {op}", remedy=f"--method {', '.join(able) or BEST}")
    return chosen or methods(op, USUAL)


def searched(question: SynthesisSpec, method: str, size_bytes: int) -> FoundProgram:
    """Return what a method finds for a size; budget, seed and link model are given to each that has such a knob.

    What was kept is proved anew: a file whose program is not right counts as not kept.
    """
    system, knobs = registry.typed(method, registry.systems)
    usual: dict[str, object] = {
        "budget": question.budget_s,
        "seed": question.seed or None,
        "link_model": question.link_model,
    }
    has = system.knobs()
    knobs = {**{key: value for key, value in usual.items() if key in has and value is not None}, **knobs}
    collective = question.collective(size_bytes)
    name = program_cache.name_of(collective, question.topology, system.slug, knobs, VERSION)
    start_s = time.perf_counter()
    if not question.fresh and (program := program_cache.kept(name, collective)) is not None:
        seconds = time.perf_counter() - start_s
        if (verified := is_right(program, question.topology)) is not False:
            return FoundProgram(method, program, seconds, verified, was_kept=True)
        start_s = time.perf_counter()
    program = system.load()(collective, question.topology, **knobs)
    seconds = time.perf_counter() - start_s
    packed = None if program.knobs.get("stopped") else program_cache.keep(name, program)
    return FoundProgram(method, program, seconds, is_right(program, question.topology), packed=packed)
