"""The bounds of one collective as an answer: with and without reduction in the network, and the certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringwright.bounds import lower_bounds
from ringwright.bounds.late_bounds import late_bounds
from ringwright.calls import arguments
from ringwright.calls.arrivals import Arrivals, arriving
from ringwright.calls.provenance import asked_of
from ringwright.costs.link_models import NAME_OF
from ringwright.model.collective import Collective, carried

if TYPE_CHECKING:
    from ringwright.calls.arrivals import Asked
    from ringwright.model.topology import Topology


# long: the object of a schema, key by key
def bounds(
    op: str,
    topology: Topology,
    size_bytes: int,
    group: Sequence[int] | None = None,
    root: int = 0,
    *,
    alpha: str = "pipelined",
    exact: bool = False,
    arrivals: Asked | None = None,
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.bound/1``: what adds at the ranks, what adds in the network, the lowest.

    The keys beside ``bounds`` are those of programs that add at the ranks; ``lowest`` is what no program can beat. ``exact``
    searches all cuts, whatever that takes; else where it takes a fraction of a second. ``tightest_cut`` is what that search
    came upon, null where there was none. With ``arrivals`` times are on the clock on which the ranks come, and ``after_last_us``
    of the lowest counts from the last of them.
    """
    size_bytes = carried(op, [size_bytes])[0]
    collective = Collective(op, range(topology.n_ranks) if group is None else group, size_bytes, root=root)
    search, come = exact or None, None if arrivals is None else arriving(arrivals, collective.p)
    every = {"at the ranks": _bounds(collective, topology, come, in_network=False, exact=search, alpha=alpha)}
    if topology.aggregators:
        every["in the network"] = _bounds(collective, topology, come, in_network=True, exact=search, alpha=alpha)
    best = {where: each[0] for where, each in every.items()}
    plain, least = best["at the ranks"], list(best.values())[-1]
    if topology.aggregators:
        least = lower_bounds.of_all(least)
    cut = next((each for each in every["at the ranks"] if each.kind == "cut"), None)
    return {
        "schema": "ringwright.bound/1",
        "asked": asked_of(topology),
        "collective": op,
        "fabric": topology.name,
        "ranks": collective.p,
        "size_bytes": size_bytes,
        "link_model": NAME_OF[alpha],
        "algbw_gbs": plain.algbw / 1e9,
        "time_us": plain.time_s * 1e6,
        "kind": plain.kind,
        "exact": plain.exact,
        "looser": plain.looser,
        "certificate": list(plain.certificate),
        "arrivals": None if come is None else come.said,
        "last_arrival_us": None if come is None else come.last_s * 1e6,
        "bounds": [
            {
                "reduction": where,
                "kind": each.kind,
                "time_us": each.time_s * 1e6,
                "algbw_gbs": each.algbw / 1e9,
                "exact": each.exact,
            }
            for where, each in best.items()
        ],
        "lowest": {
            "reduction": list(best)[-1],
            "kind": least.kind,
            "time_us": least.time_s * 1e6,
            "algbw_gbs": least.algbw / 1e9,
            "ground": least.ground,
            "exact": least.exact,
            "looser": least.looser,
            "certificate": list(least.certificate),
            "after_last_us": None if come is None else (least.time_s - come.last_s) * 1e6,
        },
        "tightest_cut": None
        if cut is None
        else {"time_us": cut.time_s * 1e6, "crossing": cut.crossing, "certificate": list(cut.certificate)},
    }


def _bounds(
    collective: Collective,
    topology: Topology,
    come: Arrivals | None,
    *,
    in_network: bool,
    exact: bool | None,
    alpha: str = "pipelined",
) -> list[lower_bounds.Bound]:
    """Return the bounds, the highest first, of ranks that come together or as they do."""
    if come is None:
        return lower_bounds.bounds(collective, topology, in_network=in_network, alpha=alpha, exact=exact)
    return late_bounds(collective, topology, come.seconds, in_network=in_network, alpha=alpha, exact=exact)


def bound(
    what: Collective | str,
    on: arguments.Machine,
    *,
    size: int | str | None = None,
    in_network: bool = True,
    alpha: str = "pipelined",
    exact: bool = False,
    arrivals: Asked | None = None,
) -> lower_bounds.Bound:
    """Return the time below which no program can do a collective on a machine, and what of the machine says so.

    Parameters
    ----------
    what
        A Collective, or an operation such as ``all-reduce`` over all ranks of the machine.
    on
        A Topology, ``dgx-h100:16``, or a file that describes one. Faults count at their best.
    size
        Of an operation: bytes, or ``64M`` (binary), the size column of nccl-tests. Usual: 64 MiB.
    in_network
        Whether switches that can add and copy may do so, where the machine has any. False gives the bound of programs that
        add at the ranks alone; NVLS and SHARP can beat that one.
    alpha
        Whether a link is free (``pipelined``) or ``busy`` during its latency; then rounds count.
    exact
        Search all cuts, if it takes minutes. False: where it takes a fraction of a second.
    arrivals
        When the ranks come, as in ``simulate``; the bound is then on the clock of the arrivals.

    Returns
    -------
    Bound
        ``time_s`` in seconds, ``algbw`` in bytes/s, its ``kind``, the ``certificate``: names of the nodes that prove it, and
        ``exact``: whether all cuts were searched.

    Raises
    ------
    UsageError
        No such operation or machine.
    InfeasibleError
        The data cannot get where they must, or a search over all cuts would take more than minutes.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.bound("all-gather", "switch:8,rate=50GB/s", size="1G").kind
    'cut'
    """
    topology = arguments.machine(on)
    wanted, within = arguments.collective(what, topology, size), in_network and bool(topology.aggregators)
    come = None if arrivals is None else arriving(arrivals, wanted.p)
    best = _bounds(wanted, topology, come, in_network=within, exact=exact or None, alpha=alpha)[0]
    return lower_bounds.of_all(best) if within else best
