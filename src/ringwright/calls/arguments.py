"""What a user names, as what it stands for: a machine, a collective, an algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import UsageError
from ringwright.ground.notebook import card
from ringwright.ground.units import parse_size
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.topology import Topology

if TYPE_CHECKING:
    from ringwright.model.program import Program

Machine = Topology | str | Path
USUAL_BYTES = 64 << 20


def machine(on: Machine, faults: Iterable[str] = (), *, seed: int = 0) -> Topology:
    """Return the Topology that is meant: itself, ``dgx-h100:16``, or a file that describes one; with these faults on it."""
    topology = on if isinstance(on, Topology) else _named(on)
    lines = [faults] if isinstance(faults, str) else [*faults]
    if not lines:
        return topology
    from ringwright.fabrics.faults import apply

    return apply(topology, lines, seed=seed)


def _named(on: str | Path) -> Topology:
    if Path(on).is_file():
        from ringwright.formats.sources.topology import read_topology

        return read_topology(Path(on))
    if isinstance(on, Path):
        raise UsageError("there is no such file", where=str(on), remedy="name a fabric: 'dgx-h100:2'")
    from ringwright.fabrics import fabric

    return fabric(on)


def collective(what: Collective | str, topology: Topology, size: int | str | None = None) -> Collective:
    """Return the Collective that is meant: itself, or ``all-reduce`` over all ranks of a machine (64 MiB without a size)."""
    if isinstance(what, Collective):
        if size is not None:
            raise UsageError("the Collective has its size", where=repr(what), remedy="leave size out")
        beyond = max(what.group)
        if beyond >= topology.n_ranks:
            raise UsageError(f"rank {beyond} is not on {topology.name}", remedy=f"0 to {topology.n_ranks - 1}")
        return what
    return Collective(what, range(topology.n_ranks), bytes_of(USUAL_BYTES if size is None else size))


def bytes_of(size: int | str) -> int:
    """Return the bytes of 65536 or ``64K``; UsageError for what is no size."""
    return parse_size(size) if isinstance(size, str) else size


@dataclass(frozen=True, repr=False)
class Algorithm:
    """An algorithm with its knobs set: call it with a Collective and a Topology to have the Program."""

    spelling: str
    slug: str
    make: Callable[..., Program]
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, collective: Collective, topology: Topology) -> Program:
        """Return the Program; UsageError or InfeasibleError where the algorithm declines."""
        return self.make(collective, topology, **self.knobs)

    def on_links(self, link_model: str) -> Algorithm:
        """Return the algorithm as it searches for links of a model (``pipelined``, ``blocking``), unless it is told another."""
        knob = registry.find(self.slug).knobs().get("link_model")
        if knob is None or "link_model" in self.knobs or knob.default == link_model:
            return self
        return replace(self, knobs={**self.knobs, "link_model": link_model})

    @property
    def __wrapped__(self) -> Callable[..., Program]:
        """The system itself, for whoever asks what it needs."""
        return self.make

    def __repr__(self) -> str:
        return f"Algorithm({self.spelling})"

    def _repr_html_(self) -> str:
        return card(f"Algorithm: {self.spelling}", registry.find(self.slug).headings)


def algorithm(spelling: str) -> Algorithm:
    """Return the algorithm of a name, its knobs set.

    Parameters
    ----------
    spelling
        ``ring``, ``ring:channels=2``, ``blueconnect:factors=8x2``, ``nccl-2-4@2.27`` (a release): a slug of
        ``ringwright.systems()`` with the knobs that ``ringwright systems SLUG`` lists.

    Returns
    -------
    Algorithm
        A callable ``(Collective, Topology) -> Program``.

    Raises
    ------
    UsageError
        No such system (it names near ones), no such knob, or a value outside the knob's range.

    Examples
    --------
    >>> import ringwright
    >>> ring = ringwright.algorithm("ring:channels=2")
    >>> box = ringwright.fabric("switch:8")
    >>> ring(ringwright.Collective("all-reduce", range(8), 1 << 20), box)
    Program(ring: all-reduce of 1 MiB over 8 ranks, 14 steps)
    """
    slug, make, knobs = registry.algorithm(spelling)
    return Algorithm(spelling, slug, make, knobs)
