"""Settings of a library as its environment has them: ``NCCL_ALGO=Ring NCCL_PROTO=LL128``, checked before anything runs.

What a cell asks of a library that is simulated becomes knobs of its model; what gloo reads is handed to real ranks. Settings that
neither knows are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringwright.costs.mpi_names import MPI_NAMES
from ringwright.costs.nccl import ALGORITHMS, PROTOCOLS, algorithm_named, protocol_named
from ringwright.ground.errors import UsageError
from ringwright_lab.sweep.point import GridPoint

LIBRARIES = {
    "gloo": (),
    "nccl": ("nccl-2-4",),
    "mpi": ("open-mpi", "mpich2", "mvapich"),
}  # by backend; the first is usual
GLOO = ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT", "TORCH_GLOO_LAZY_INIT")
NCCL = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE")
LEAST_BUFFER_BYTES, MOST_BUFFER_BYTES = 64 << 10, 1 << 30
TUNED, DYNAMIC = "OMPI_MCA_coll_tuned_", "OMPI_MCA_coll_tuned_use_dynamic_rules"
OPEN_MPI = {"algorithm": "algorithm", "algorithm_segmentsize": "segment_bytes", "algorithm_tree_fanout": "fanout"}
SENT_APART = ("all-to-all", "send-recv")  # for which NCCL chooses nothing
Knobs = dict[str, int | str]
USUAL = "NCCL_ALGO=Ring NCCL_PROTO=Simple"


def settings(text: str) -> dict[str, str]:
    """Return ``A=1 B=2`` as a mapping; UsageError for what is no setting, or is set twice."""
    made: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"'{word}' is no setting", where=f"env = {text!r}", remedy=f"env = '{USUAL}'")
        if name in made:
            raise UsageError(f"{name} is set twice", where=f"env = {text!r}", remedy="once")
        made[name] = value
    return made


def library_of(point: GridPoint) -> str:
    """Return the spelling of the library that a cell is simulated by; empty where its ranks are real."""
    return point.library or next(iter(LIBRARIES[point.backend]), "")


def known(point: GridPoint) -> GridPoint:
    """Return a grid point whose backend, library and settings exist, whether or not they go together; UsageError otherwise."""
    every = [slug for slugs in LIBRARIES.values() for slug in slugs]
    if point.backend not in LIBRARIES:
        raise UsageError(f"'{point.backend}' is no backend", remedy=f"one of: {', '.join(LIBRARIES)}")
    if point.library and _slug(point.library) not in every:
        raise UsageError(f"'{point.library}' is no library", remedy=f"one of: {', '.join(every)}")
    given = settings(point.env)
    _nccl(given)
    _open_mpi({name: value for name, value in given.items() if name.startswith("OMPI_")})
    _known({name: value for name, value in given.items() if not name.startswith("OMPI_")}, (*NCCL, *GLOO), "a cell")
    return point


def check(point: GridPoint) -> None:
    """Raise UsageError for a backend, a library or settings that do not exist or do not go together."""
    known(point)
    legal = LIBRARIES[point.backend]
    if point.library and _slug(point.library) not in legal:
        raise UsageError(
            f"'{point.library}' is no library of backend '{point.backend}'",
            remedy=f"one of: {', '.join(legal)}" if legal else "leave library out, or backend = 'nccl' (simulated)",
        )
    given = settings(point.env)
    if point.backend == "gloo":
        _known(given, GLOO, "gloo")
    elif library_of(point).startswith("nccl"):
        _known(given, NCCL, "the model of NCCL")
        _nccl(given)
    elif library_of(point).startswith("open-mpi"):
        _open_mpi(given)
    elif given:
        raise UsageError(f"no settings of {library_of(point)} are read here", remedy="leave env out")


def _slug(library: str) -> str:
    return library.partition("@")[0].partition(":")[0]


def knobs(point: GridPoint, op: str, channels: int | None = None) -> Knobs:
    """Return the knobs of a library's model that the settings mean for an operation.

    ``channels`` are those that the library takes by itself, which the limits on channels may change.
    """
    given = settings(point.env)
    if not library_of(point).startswith("nccl"):
        return _open_mpi(given).get(op, {})
    if op in SENT_APART:
        return {}
    made: Knobs = _nccl(given)
    least, most = (int(given.get(name, 0)) for name in ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"))
    if channels is not None and (least or most):
        limited = min(max(channels, least), most or max(channels, least))
        made |= {"channels": limited} if limited != channels else {}
    return made


def _known(given: Mapping[str, str], names: tuple[str, ...], whose: str) -> None:
    """Raise UsageError for a setting that is none of these."""
    strange = sorted(set(given) - set(names))
    if strange:
        raise UsageError(f"{whose} has no setting '{strange[0]}'", remedy=f"one of: {', '.join(names)}")


def _nccl(given: Mapping[str, str]) -> Knobs:
    """Return algorithm and protocol by their names here; UsageError for none of NCCL's, and for channels that are no number."""
    made: Knobs = {}
    words = (
        ("NCCL_ALGO", "algorithm", algorithm_named, ALGORITHMS),
        ("NCCL_PROTO", "protocol", protocol_named, PROTOCOLS),
    )
    for name, knob, named, legal in words:
        if name in given:
            value = named(given[name])
            if value is None:
                plain = ", ".join(each.replace("_", "") for each in legal)
                raise UsageError(f"{name}={given[name]} is not understood", remedy=f"one of: {plain}")
            made[knob] = value
    if "NCCL_BUFFSIZE" in given:
        made["buffer_bytes"] = _number("NCCL_BUFFSIZE", given["NCCL_BUFFSIZE"], LEAST_BUFFER_BYTES)
    counts = [_number(name, given[name]) for name in ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS") if name in given]
    if len(counts) > 1 and counts[0] > counts[1]:
        raise UsageError(
            f"at least {counts[0]} and at most {counts[1]} channels", remedy="NCCL_MAX_NCHANNELS the larger"
        )
    return made


def _open_mpi(given: Mapping[str, str]) -> dict[str, Knobs]:
    """Return operation -> knobs; UsageError for what ``coll/tuned`` does not read, or reads only with its dynamic rules."""
    ours = {theirs: name for name, theirs in MPI_NAMES.items()}
    made: dict[str, Knobs] = {}
    for name, value in given.items():
        if name == DYNAMIC:
            continue
        call, _, rest = name.removeprefix(TUNED).partition("_algorithm")
        knob = OPEN_MPI.get(f"algorithm{rest}")
        if not name.startswith(TUNED) or call not in ours or knob is None:
            raise UsageError(
                f"Open MPI's model has no setting '{name}'",
                remedy=f"{DYNAMIC}=1 {TUNED}allreduce_algorithm=4 (or ..._segmentsize, ..._tree_fanout)",
            )
        op = "reduce-scatter" if ours[call] == "reduce-scatter-block" else ours[call]
        made.setdefault(op, {})[knob] = _number(name, value)
    if made and given.get(DYNAMIC) not in ("1", "true"):
        raise UsageError("Open MPI reads these settings with its dynamic rules alone", remedy=f"add {DYNAMIC}=1")
    return made


def _number(name: str, value: str, least: int = 1) -> int:
    if not value.isdecimal() or not least <= int(value) <= MOST_BUFFER_BYTES:
        raise UsageError(f"{name}={value} is no number of {least} or more", remedy=f"{name}={max(least, 4)}")
    return int(value)
