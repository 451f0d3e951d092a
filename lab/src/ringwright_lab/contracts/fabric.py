"""The contract of fabrics: a machine whose numbers make sense, whose routes follow its links, and that is the same each time.

A family is tried on some of the smallest sizes that it takes, and there with every knob at both ends of its range and with each
of its words; what it cannot build it refuses with a UsageError, which counts as declined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.ground.knobs import Knob, knobs_of
from ringwright.model.registry import values
from ringwright_lab.contracts.knob_values import settled
from ringwright_lab.contracts.outcome import DECLINED, Outcome, TriedInput, made, raised

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

SIZES = ("", "1", "2", "3", "4", "8", "2x2", "4x2", "2x2x2", "4x4x2")
MOST_RANKS, MOST_SIZES = 80, 3
Build = Callable[[str, str], "Topology"]  # size and knob, each as it is typed


def numbers(top: Topology, again: Topology) -> str | None:
    """There are ranks; links lead from node to node, have rates (0: none is there) and latencies of 0 or more."""
    del again
    if top.n_ranks < 1:
        return "it has no ranks"
    ends = np.concatenate([top.src, top.dst])
    if len(ends) and (ends.min() < 0 or ends.max() >= top.n_nodes):
        return f"a link leads to node {ends.max()} of {top.n_nodes}"
    if not np.all(np.isfinite(top.rate) & (top.rate >= 0)):
        return "a link has a rate that is no number of bytes/s"
    if not np.all(np.isfinite(top.latency_s) & (top.latency_s >= 0)):
        return "a link has a latency that is no time"
    strange = [each.name for each in top.groups if not each.rate > 0 or not np.all(each.links < top.n_links)]
    return f"the shared capacity {strange[0]} has no rate, or links that do not exist" if strange else None


def routed(top: Topology, again: Topology) -> str | None:
    """From every rank a route of links, each with a rate above 0, leads to every other one, and meets no node twice."""
    del again
    ranks = np.arange(min(top.n_ranks, 16))
    src, dst = (each.ravel() for each in np.meshgrid(ranks, ranks))
    starts, links = top.routes(src, dst)
    for pair, (one, other) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        way = links[starts[pair] : starts[pair + 1]]
        nodes = [one, *top.dst[way].tolist()]
        if nodes[:-1] != top.src[way].tolist() or nodes[-1] != other or len(set(nodes)) < len(nodes):
            return f"the route from rank {one} to rank {other} is {nodes}"
        if not np.all(top.rate[way] > 0):
            return f"the route from rank {one} to rank {other} takes a link whose rate is 0"
    return None


def named(top: Topology, again: Topology) -> str | None:
    """Nodes have names of their own, by which they are found again."""
    del again
    labels = [top.label(node) for node in range(min(top.n_nodes, 256))]
    if len(set(labels)) < len(labels):
        return f"two nodes are called '{max(labels, key=labels.count)}'"
    wrong = next((label for node, label in enumerate(labels) if top.find(label) != node), None)
    return None if wrong is None else f"'{wrong}' is not found again"


def same_again(top: Topology, again: Topology) -> str | None:
    """Two machines of the same spelling are the same."""
    from ringwright.formats.exports.topology_json import topology_json

    return None if topology_json(top) == topology_json(again) else "it differs from one time to the next"


def timed(top: Topology, again: Topology) -> str | None:
    """A ring over its ranks ends, and not before the bounds of physics allow."""
    del again
    from ringwright.algorithms.blocks.ring import ring
    from ringwright.bounds.lower_bounds import bound
    from ringwright.engines.choose import simulate
    from ringwright.model.collective import Collective

    collective = Collective("all-reduce", range(min(top.n_ranks, 16)), 1 << 20)
    run, least = simulate(ring(collective, top), top), bound(collective, top, exact=False)
    if run.time_s < least.time_s * (1 - 1e-9):
        return f"{run.time_s * 1e6:.3f} us is less than the bound {least.time_s * 1e6:.3f} us ({least.kind})"
    return None


CHECKS: dict[str, Callable[[Topology, Topology], str | None]] = {
    "numbers": numbers,
    "routed": routed,
    "named": named,
    "same-again": same_again,
    "timed": timed,
}


def check_fabric(
    family: str | Callable[..., Topology], *, sizes: tuple[str, ...] = (), knobs: bool = True
) -> list[Outcome]:
    """Return the outcome of every check on a family of machines; ``failures`` of them lists what is wrong.

    Parameters
    ----------
    family
        Its name, of the house or of an entry point of ``ringwright.fabrics``, or the function ``(size, **knobs) -> Topology``.
    sizes
        Sizes as they are typed, such as ``("2", "4x2")``; none: the smallest that the family takes.
    knobs
        Whether to try each knob of its signature too.

    Returns
    -------
    list of Outcome
        One for each size, and for each value of a knob.

    Examples
    --------
    >>> from ringwright_lab.testing import check_fabric, failures
    >>> failures(check_fabric("torus", sizes=("2x3",), knobs=False))
    []
    """
    name = family if isinstance(family, str) else getattr(family, "__name__", "fabric").replace("_", "-")
    try:
        build, known = _of_name(family) if isinstance(family, str) else _of_function(name, family)
    except Exception as error:  # noqa: BLE001 - a signature of others may hold anything
        return [Outcome(TriedInput(name), failed={"knobs": raised(error)})]
    taken = list(sizes or _taken(build))
    outcomes = [_examine(name, build, size, "") for size in taken]
    if not taken:
        return [Outcome(TriedInput(name), failed={"built": _why_none(build)})]
    return outcomes + [_examine(name, build, taken[0], knob) for knob in (_settings(known) if knobs else ())]


def _of_name(name: str) -> tuple[Build, Mapping[str, Knob]]:
    from ringwright.fabrics import fabric, knobs

    return lambda size, knob: fabric(name + (f":{size}" if size else "") + (f",{knob}" if knob else "")), knobs(name)


def _of_function(name: str, call: Callable[..., Any]) -> tuple[Build, Mapping[str, Knob]]:
    known = knobs_of(call)

    def build(size: str, knob: str) -> Topology:
        said = values(name, known, [knob] if knob else [], where=knob)
        made_of: Topology = call(*map(int, filter(None, size.split("x"))), **said)
        return made_of

    return build, known


def _settings(known: Mapping[str, Knob]) -> Iterator[str]:
    for knob in known.values():
        if knob.can_be_typed:
            yield from (f"{knob.name}={text}" for text in settled(knob, ()))


def _taken(build: Build) -> Iterator[str]:
    """Yield the smallest sizes that it takes; one that fails otherwise than by an open refusal is one of them."""
    count = 0
    for size in SIZES:
        top, why = made(lambda size=size: build(size, ""))  # type: ignore[misc]
        small = top is None or getattr(top, "n_ranks", 1) <= MOST_RANKS
        if count < MOST_SIZES and small and not why.startswith((DECLINED, "raised TypeError")):
            count += 1
            yield size


def _why_none(build: Build) -> str:
    return f"it takes none of the sizes {', '.join(filter(None, SIZES))}: {made(lambda: build('2', ''))[1]}"


def _examine(name: str, build: Build, size: str, knob: str) -> Outcome:
    from ringwright.model.topology import Topology

    outcome = Outcome(TriedInput(name, f"{size} {knob}".strip()))
    top, why = made(lambda: build(size, knob))
    if not isinstance(top, Topology):
        outcome.note("built", why or f"it returned {type(top).__name__}, not a Topology")
        return outcome
    if top.n_ranks > MOST_RANKS:
        outcome.note("built", f"{DECLINED}more than {MOST_RANKS} ranks")
        return outcome
    again = build(size, knob)
    for check, look in CHECKS.items():
        if not outcome.run(check, partial(look, top, again)) and check == "numbers":
            break
    return outcome
