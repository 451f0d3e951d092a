"""How an MPI library is made to run one algorithm and no other, by the names of our building blocks.

Open MPI numbers the algorithms of ``coll/tuned``; other components, which would be asked first, are left out. MPICH names them
in variables per collective; its device's own collectives are switched off. Where a library would quietly take another because
of the number of ranks, this module refuses when told that number. (MPICH could be told to fail instead, but then it fails
while it starts, at collectives of its own.) Two cases are left to the caller: Rabenseifner needs as many elements as the largest
power of two within p, a ring of Open MPI p.

Source: ``ompi_info --param coll tuned --level 9`` of Open MPI 5.0.11; ``mpivars`` of MPICH 5.0.2. The bytes that each rank
sent over an interface of its own confirmed the all-reduce algorithms of both (ring 1.5 n, recursive doubling 2 n, linear 3 n
at the root of 4 ranks).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.costs.mpi_names import mpi_name
from ringwright.ground.errors import DeclinedError, UsageError

POWER_OF_TWO, EVEN = "a power of two", "an even number"
_SEGMENTED_RING_BYTES = 1 << 20  # what our segmented ring takes


@dataclass(frozen=True)
class Forcing:
    """What a library calls one of our algorithms (number or name), from which release on, what it cannot do, its knobs."""

    called: str
    since: int = 0
    needs: str = ""
    in_place: bool = True  # whether it is right in place
    fanout: str = ""
    fixed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class MpiOverride:
    """Environment variables that force an algorithm; ``call``: the MPI collective meant; ``called``: the library's name."""

    settings: dict[str, str] = field(default_factory=dict)
    call: str = ""
    called: str = ""


def _tuned(listed: str) -> dict[str, Forcing]:
    """Return ways from ``slug=number`` words; ``@6`` is the first release, ``!2`` and ``!even`` what p must be.

    ``*``: wrong in place.
    """
    forcings = {}
    for word in listed.split():
        slug, _, rest = word.rstrip("*").partition("=")
        rest, _, needs = rest.partition("!")
        number, _, since = rest.partition("@")
        forcings[slug] = Forcing(
            number, int(since or 0), {"": "", "2": POWER_OF_TWO, "even": EVEN}[needs], not word.endswith("*")
        )
    return forcings


OPEN_MPI = {
    "all-reduce": _tuned(
        "linear=1 nonoverlapping=2 recursive-doubling=3 ring=4 segmented-ring=5 rabenseifner=6 allgather-reduce=7@6"
    ),
    "all-gather": _tuned(
        "linear=1 bruck=2 recursive-doubling=3!2 ring=4 neighbor-exchange=5!even sparbit=7* direct=8@6"
    ),
    "all-gather-v": _tuned("linear=1 bruck=2 ring=3 neighbor-exchange=4!even sparbit=6"),
    "all-to-all": _tuned("direct=1 pairwise=2 bruck=3"),
    "all-to-all-v": _tuned("direct=1 pairwise=2"),
    "barrier": _tuned("linear=1 double-ring=2 recursive-doubling=3 bruck=4 binomial=6"),
    "broadcast": _tuned(
        "linear=1 chain=2 pipeline=3 split-binary-tree=4 binary-tree=5 binomial=6 knomial=7 scatter-allgather=8"
    ),
    "gather": _tuned("linear=1 binomial=2"),
    "reduce": _tuned(
        "linear=1 chain=2 pipeline=3 binary-tree=4 binomial=5 in-order-binary=6 rabenseifner=7 knomial=8@6"
    ),
    "reduce-scatter": _tuned("nonoverlapping=1 recursive-halving=2 ring=3 butterfly=4"),
    "reduce-scatter-block": _tuned("linear=1 recursive-doubling=2 recursive-halving=3 butterfly=4"),
    "scan": _tuned("linear=1 recursive-doubling=2"),
    "exscan": _tuned("linear=1 recursive-doubling=2"),
    "scatter": _tuned("linear=1 binomial=2"),
}
_SEGMENTS = {"all-reduce", "broadcast", "reduce"}

_SCATTERED = {
    "recursive-halving": Forcing("recursive_halving"),
    "pairwise": Forcing("pairwise"),
    "recursive-doubling": Forcing("recursive_doubling"),
    "butterfly": Forcing("noncommutative", needs=POWER_OF_TWO),
}
_GATHERED = {
    "recursive-doubling": Forcing("recursive_doubling", needs=POWER_OF_TWO),
    "bruck": Forcing("brucks"),
    "ring": Forcing("ring"),
}
MPICH = {
    "all-reduce": {
        "recursive-doubling": Forcing("recursive_doubling"),
        "rabenseifner": Forcing("reduce_scatter_allgather"),
        "ring": Forcing("ring"),
        "recursive-multiplying": Forcing("recursive_multiplying", fanout="RECURSIVE_MULTIPLYING_KVAL"),
    },
    "all-gather": _GATHERED,
    "all-gather-v": _GATHERED,
    "all-to-all": {"bruck": Forcing("brucks"), "direct": Forcing("scattered"), "pairwise": Forcing("pairwise")},
    "all-to-all-v": {"direct": Forcing("scattered")},
    "barrier": {"bruck": Forcing("k_dissemination", fanout="DISSEM_KVAL")},
    "broadcast": {
        "binomial": Forcing("binomial"),
        "scatter-allgather": Forcing("scatter_recursive_doubling_allgather", needs=POWER_OF_TWO),
        "binary-tree": Forcing("tree", fanout="TREE_KVAL", fixed=(("TREE_TYPE", "kary"),)),
        "knomial": Forcing("tree", fanout="TREE_KVAL", fixed=(("TREE_TYPE", "knomial_1"), ("TREE_KVAL", "4"))),
    },
    "gather": {"binomial": Forcing("binomial")},
    "reduce": {"binomial": Forcing("binomial"), "rabenseifner": Forcing("reduce_scatter_gather")},
    "reduce-scatter": _SCATTERED,
    "reduce-scatter-block": _SCATTERED,
    "scan": {"recursive-doubling": Forcing("recursive_doubling")},
    "exscan": {"recursive-doubling": Forcing("recursive_doubling")},
    "scatter": {"binomial": Forcing("binomial")},
}
_TABLES = {"open-mpi": OPEN_MPI, "mpich": MPICH}
_LIBRARIES = {"open-mpi": "Open MPI", "mpich": "MPICH"}


def offered(name: str, op: str, release: int = 5) -> tuple[str, ...]:
    """Return our names of the algorithms that a library can be forced to for an operation."""
    calls = _calls(op)
    table = _table(name)
    slugs = [slug for call in calls for slug, forcing in table.get(call, {}).items() if forcing.since <= release]
    return tuple(dict.fromkeys(slugs))


def forced(
    name: str,
    op: str,
    algorithm: str,
    *,
    p: int = 0,
    in_place: bool = False,
    segment_bytes: int = 0,
    fanout: int = 0,
    release: int = 5,
) -> MpiOverride:
    """Return the settings that make a library run ``algorithm`` (our name, ``recursive-doubling``) for ``op``.

    A reduce-scatter is two collectives in MPI, with equal blocks and with counts; ``call`` says which one has the algorithm.
    DeclinedError where the library has it not, or not for ``p`` ranks (0: not checked), or ``in_place`` with wrong results (the
    sparbit of 5.0.11, seen at 3, 4, 5 and 8 ranks). ``segment_bytes`` and ``fanout`` 0:
    the library's default, which is ours.
    """
    slug = algorithm.replace("_", "-")
    table = _table(name)
    for call in _calls(op):
        forcing = table.get(call, {}).get(slug)
        if forcing is None or forcing.since > release:
            continue
        _require_ranks(name, forcing, slug, p)
        if in_place and not forcing.in_place:
            raise DeclinedError(f"{_LIBRARIES[name]}'s {slug} is wrong in place", remedy="a second buffer")
        settings = (_mca if name == "open-mpi" else _cvars)(call, slug, forcing, segment_bytes, fanout)
        return MpiOverride(settings, call, forcing.called)
    has = ", ".join(offered(name, op, release))
    remedy = f"one of: {has}" if has else f"{_LIBRARIES[name]}'s own choice: no algorithm can be forced"
    raise DeclinedError(f"{_LIBRARIES[name]} has no {op} by {slug}", remedy=remedy)


def _table(name: str) -> dict[str, dict[str, Forcing]]:
    if name not in _TABLES:
        raise UsageError(f"no MPI library '{name}'", remedy=f"one of: {', '.join(_TABLES)}")
    return _TABLES[name]


def _calls(op: str) -> tuple[str, ...]:
    return ("reduce-scatter-block", "reduce-scatter") if op == "reduce-scatter" else (op,)


def _require_ranks(name: str, forcing: Forcing, slug: str, p: int) -> None:
    good = {POWER_OF_TWO: p & (p - 1) == 0, EVEN: p % 2 == 0}.get(forcing.needs, True)
    if p and not good:
        raise DeclinedError(
            f"{_LIBRARIES[name]}'s {slug} needs {forcing.needs} of ranks, not {p}", remedy="other ranks"
        )


def _mca(call: str, slug: str, forcing: Forcing, segment_bytes: int, fanout: int) -> dict[str, str]:
    stem = f"OMPI_MCA_coll_tuned_{mpi_name(call)}_algorithm"
    settings = {
        # ``han`` and the like would be asked before ``tuned``.
        "OMPI_MCA_coll": "basic,libnbc,tuned,self,inter",
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        stem: forcing.called,
    }
    if slug == "segmented-ring":  # without a segment size it would be the ring
        segment_bytes = segment_bytes or _SEGMENTED_RING_BYTES
    if segment_bytes and call in _SEGMENTS:
        settings[f"{stem}_segmentsize"] = str(segment_bytes)
    if fanout:
        knobs = ("knomial_radix",) if slug == "knomial" else ("tree_fanout", "chain_fanout")
        settings |= {f"{stem}_{knob}": str(fanout) for knob in knobs}
    return settings


def _cvars(call: str, slug: str, forcing: Forcing, segment_bytes: int, fanout: int) -> dict[str, str]:
    del slug
    stem = f"MPIR_CVAR_{mpi_name(call).upper()}"
    settings = {"MPIR_CVAR_DEVICE_COLLECTIVES": "none", f"{stem}_INTRA_ALGORITHM": forcing.called}
    settings |= {f"{stem}_{knob}": value for knob, value in forcing.fixed}
    if fanout and forcing.fanout:
        settings[f"{stem}_{forcing.fanout}"] = str(fanout)
    if segment_bytes:
        raise DeclinedError("MPICH's forced algorithms know no segments", remedy="segment_bytes=0")
    return settings
