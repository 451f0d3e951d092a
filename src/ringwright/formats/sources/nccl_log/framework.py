"""Lines that are not NCCL's but say what NCCL cannot: watchdogs, RAS text, launch arguments, iterations.

Shapes: PyTorch ``ProcessGroupNCCL.cpp`` watchdog messages, Megatron-LM and DeepSpeed argument and iteration prints,
the NCCL RAS client's text (2.24 and later), launchers' obituaries.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ringwright.formats.sources.iteration_line import iteration_line
from ringwright.formats.sources.nccl_log import process_ends, ras_text, switch_lines
from ringwright.formats.sources.nccl_log.state import ErrorLine, LogState

Place = tuple[str, int]

_TIMEOUT = re.compile(
    r"\[(?:PG[^\]]{0,200}? )?Rank (?P<rank>\d{1,7})\] Watchdog caught collective operation timeout: WorkNCCL\("
    r"SeqNum=(?P<seq>\d{1,18}), OpType=(?P<op>\w+)(?:, NumelIn=(?P<nin>\d{1,20}), NumelOut=(?P<nout>\d{1,20}))?"
    r"[^)]*Timeout\(ms\)=(?P<limit>\d+)\)(?: ran for (?P<ran>\d+) milliseconds)?"
)
_OF_GROUP = re.compile(r"\[PG ID \d{1,20} PG GUID (?P<guid>[^\]]{1,200}?) Rank \d{1,7}\]")
# Until 2.5 "at NCCL work: 5, last enqueued NCCL work: ..", since 2.6 "at work sequence id: 5 PG status: last enqueued work: ..",
# and of ranks whose own watchdog did not end: "Received a dump signal .. Last enqueued NCCL work: ..".
_PROGRESS = re.compile(
    r"\[PG (?:ID )?(?P<pg>\S+)(?: PG GUID (?P<guid>[^\]]{1,200}?))? Rank (?P<rank>\d{1,7})\].{0,300}?"
    r"(?:work(?: sequence id)?: (?P<at>\d{1,20})(?:,| PG status:) )?[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,20}),"
    r"(?: last started (?:NCCL )?work: -?\d{1,20},)? last completed (?:NCCL )?work: (?P<completed>-?\d{1,20})"
)
_KILLED = re.compile(
    r"(?P<host>[\w.-]{1,255}): rank (?P<rank>\d{1,7}) (?:died from|exited because of) signal (?P<signal>\d{1,3})\b"
)
_WORLD = re.compile(r"using world size: (?P<world>\d{1,7})\b(?P<rest>.*)")
_DEGREE = re.compile(r"([\w-]{1,40}?)[ -](?:model[ -])?parallel[ -]size: (\d{1,7})\b")
_ARGUMENT = re.compile(r"^\s*(?P<name>[a-z_]{4,60}) \.{2,} (?P<value>\S+)\s*$")
_ITER_GENERIC = re.compile(
    r"^(?:iter|step)(?:ation)? (?P<n>\d{1,15}):.*?time: (?P<t>\d{1,15}(?:\.\d{1,15})?) ?(?P<unit>ms|s)\b"
)
_TP_PP_RANK = re.compile(r"on \(tensor, pipeline\) model parallel rank \((\d{1,7}), (\d{1,7})\)")
_NO_PROVIDER = re.compile(r"provider \w{1,40} output empty list")
_VERSION = re.compile(r"(?P<kind>[NR]CCL)(?: version|\*\*:) ?:? ?(?P<version>2\.\d{1,2}\.\d{1,2})\b")

# One search that no line of any reader below gets past unnoticed.
_MARKS = re.compile(
    r"Watchdog caught|[Ll]ast enqueued|signal \d|using world size|\.\. |^(?:iter|step)|iteration |parallel rank|"
    r"[NR]CCL(?: version|\*\*)|output empty list|"
    + process_ends.MARK
    + "|"
    + ras_text.MARK
    + "|"
    + switch_lines.LIBRARY_MARK
)
_DEGREE_NAMES = {
    "data": "dp",
    "tensor": "tp",
    "tensor-model": "tp",
    "pipeline": "pp",
    "pipeline-model": "pp",
    "context": "cp",
    "expert": "ep",
    "expert-model": "ep",
}
_ARGUMENT_NAMES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "data_parallel_size": "dp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_parallel_size": "ep",
    "moe_expert_parallel_size": "ep",
    "world_size": "world",
}
# Any of these bytes makes a line worth a careful look, though NCCL did not write it or its prefix was cut off.
NEEDLES = [
    b"Watchdog caught",
    b"ast enqueued ",
    b"using world size",
    b"elapsed time per iteration",
    b"parallel_size ..",
    b"world_size ..",
    b"(tensor, pipeline)",
    b" from signal ",
    b"iter ",
    b"output empty list",
    *process_ends.NEEDLES,
    *ras_text.NEEDLES,
    b"via P2P/",
    b"via NET/",
    b"via SHM",
    b"[nranks=",
    b"opCount ",
    b"RCCL version",
    b"- Init COMPLETE",
    *switch_lines.NEEDLES,
]


def read(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    """Take what a non-NCCL line says into ``state``; say whether it said anything."""
    if _MARKS.search(text) is None:
        return False
    return any(reader(text, state, where, rank, time_s) for reader in _READERS)


def _timeout(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    match = _TIMEOUT.search(text)
    if match is None:
        return False
    data = {key: match[key] for key in ("seq", "op", "nin", "nout", "limit", "ran")}
    group = _OF_GROUP.search(text)
    data["pg"] = None if group is None else group["guid"]
    # What the message names is the rank in its group.
    said = int(match["rank"]) if rank is None else rank
    error = ErrorLine("watchdog", "", 0, -1, match[0], *where, rank=said, time_s=time_s, data=data)
    state.error(error)
    return True


def _progress(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    match = _PROGRESS.search(text)
    if match is None:
        return False
    enqueued, completed = int(match["enqueued"]), int(match["completed"])
    # A group's number is one of each rank, its GUID is the same on all.
    data: dict[str, object] = {"pg": match["guid"] or match["pg"].rstrip("]"), "enqueued": enqueued}
    data["at"] = int(match["at"]) if match["at"] else None
    # The completed counter can be uninitialised memory; it cannot exceed what was enqueued.
    data["completed"] = completed if -1 <= completed <= enqueued else None
    said = int(match["rank"]) if rank is None else rank
    state.error(ErrorLine("progress", "", 0, -1, match[0], *where, rank=said, time_s=time_s, data=data))
    return True


def _killed(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    match = _KILLED.search(text)
    if match is None:
        return False
    error = ErrorLine("killed", match["host"], 0, -1, match[0], *where, rank=int(match["rank"]), time_s=time_s)
    error.status = int(match["signal"])
    state.error(error)
    return True


def _launch(text: str, state: LogState, source_line: Place, rank: int | None, time_s: float | None) -> bool:
    where = f"{source_line[0]}:{source_line[1]}"
    world = _WORLD.search(text)
    if world is not None:
        state.launch.setdefault("world", (int(world["world"]), where))
        for name, value in _DEGREE.findall(world["rest"]):
            if name in _DEGREE_NAMES:
                state.launch.setdefault(_DEGREE_NAMES[name], (int(value), where))
        return True
    argument = _ARGUMENT.match(text)
    if argument is not None and argument["name"] in _ARGUMENT_NAMES and re.fullmatch(r"\d{1,7}", argument["value"]):
        state.launch.setdefault(_ARGUMENT_NAMES[argument["name"]], (int(argument["value"]), where))
        return True
    return False


def _iteration(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    said = iteration_line(text)
    if said is not None:
        state.iterations.append((said.number, said.seconds))
        return True
    match = _ITER_GENERIC.match(text)
    if match is None:
        return False
    seconds = float(match["t"]) / (1000 if match["unit"] == "ms" else 1)
    state.iterations.append((int(match["n"]), seconds))
    return True


def _layout(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    matches = _TP_PP_RANK.findall(text)
    state.layout.extend((int(tp), int(pp)) for tp, pp in matches)
    return bool(matches)


def _ras(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    return ras_text.read_ras(text, state, where)


def _provider(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    """What libfabric prints where it finds no device of a network."""
    match = _NO_PROVIDER.search(text)
    if match is not None:
        state.error(ErrorLine("provider", "", 0, -1, match[0], *where, rank=rank, time_s=time_s))
    return match is not None


def _version(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    versions = _VERSION.findall(text)
    for kind, version in versions:
        state.versions[version] += 1
        state.rccl = state.rccl or kind == "RCCL"
    return bool(versions)


def _sharp(text: str, state: LogState, where: Place, rank: int | None, time_s: float | None) -> bool:
    return switch_lines.read_library(text, state, where)


_READERS: tuple[Callable[[str, LogState, Place, int | None, float | None], bool], ...] = (
    _timeout,
    _progress,
    process_ends.read_end,
    _version,
    _launch,
    _iteration,
    _layout,
    _ras,
    _killed,
    _provider,
    _sharp,
)
