"""How processes end, in their own words and their launcher's: exceptions of ranks, torchrun's summary of failures.

PyTorch prints of an error of NCCL the file, what failed and, lines later, "Last error:" with NCCL's own words
(``torch/csrc/distributed/c10d/NCCLUtils.hpp``); torchrun prints host, rank, exit code and signal of each rank that failed, and
which failed first (``torch/distributed/elastic/multiprocessing/errors/__init__.py``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ringwright.formats.sources.nccl_log.state import ErrorLine

if TYPE_CHECKING:
    from ringwright.formats.sources.nccl_log.state import LogState

RAISED, EXIT = "raised", "exit"
MOST_FIELDS = 5  # of one rank in torchrun's summary
_EXCEPTION = re.compile(
    r"^(?:E\s+|(?:ERROR|CRITICAL|FATAL)\b.{0,80}?[\s\]])?(?:[a-z_]\w*\.)*"
    r"(?P<name>[A-Z]\w*(?:Error|Exception)): (?P<what>\S.{0,1000})$"
)
_OF_NCCL = re.compile(
    r"NCCL error in: (?P<at>\S{1,300}:\d{1,7}), (?P<what>.{1,200}?)(?: \(run with .*?\))?(?:, NCCL version .*)?$"
)
_CODE = re.compile(r"^nccl\w+Error: .{1,300}$")
_LAST = re.compile(r"^Last error:\s*$")
_FIELD = re.compile(r"^\s+(?P<name>host|rank|exitcode|traceback)\s+: (?P<value>\S.{0,500}?)\s*$")
_SIGNAL = re.compile(r"Signal (?P<number>\d{1,3}) \((?P<name>SIG\w{2,10})\)")
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
# One line for a process that ended: torchrun's agent, Slurm's srun, Open MPI's mpirun.
_ENDED = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) (?P<local>local_)?rank: (?P<rank>\d{1,7}) \(pid: \d{1,10}\)|"
    r"srun: error: (?P<node>[\w.-]{1,255}): tasks? (?P<tasks>[\d,-]{1,200}): (?P<how>[A-Z].{0,120})|"
    r"process rank (?P<of>\d{1,7}) with PID \d{1,10} on node (?P<on>[\w.-]{1,255}) exited on "
    r"(?P<by>signal \d{1,3}(?: \([\w ]+\))?)"
)
# Of a traceback; a dump of stacks, which nobody raised, has no comma before "in".
_FRAME = re.compile(r'File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,7}), in (?P<function>[\w<>.]{1,100})')
_BY_LAUNCHER = re.compile(r"Terminated|signal 15\b|SIGTERM")
_CALLED = re.compile(r"\b(nccl[A-Z]\w{3,40})\b")
_CHILD = re.compile(r"\bChildFailedError:\s*(?P<what>.{0,200})$")
MARK = (
    r"(?:Error|Exception): |NCCL error in: |^nccl\w+Error|Last error:|Root Cause \(|ChildFailedError|"
    r"(?:host|rank|exitcode|traceback) +: |[Ff]ail|error|exited on signal|  File \"|ncclComm"
)
NEEDLES = [
    b"Error: ",
    b"Exception: ",
    b"Last error:",
    b"Root Cause (",
    b"ChildFailedError",
    b"exitcode  :",
    b"traceback :",
    b"  rank      :",
    b"  host      :",
    b'  File "',
    b"ncclComm",
    b"failed (exitcode",
    b"srun: error",
    b"exited on signal",
    b"Cuda failure",
    b" failed",
    b" completed with error",
]


def read_end(text: str, state: LogState, where: tuple[str, int], rank: int | None, time_s: float | None) -> bool:
    """Take what a line says of a process's end; say whether it said anything."""
    line = text.rstrip()
    if _after_last(line, state, where):
        return True
    if _LAST.match(line):
        state.last_error = where
        return True
    if (field := _FIELD.match(line)) is not None:
        return _failure(field["name"], field["value"], state, where)
    if _ROOT.search(line):
        state.is_root_next = True
        return True
    if (ended := _ENDED.search(line)) is not None:
        return _process(ended, state, where, time_s)
    if (child := _CHILD.search(line)) is not None:
        what = f"a rank ended with an error, which its launcher passed on (ChildFailedError) {child['what']}".strip()
        state.error(ErrorLine(EXIT, "", 0, -1, what, *where, rank=None, time_s=time_s, data={"child": True}))
        return True
    if _traceback(line, state, where, rank, time_s):
        return True
    return _exception(line, state, where, rank, time_s)


def _traceback(line: str, state: LogState, where: tuple[str, int], rank: int | None, time_s: float | None) -> bool:
    """Take a frame of a traceback, the last so far, until the exception itself comes: its words may have been cut off."""
    last = state.tracebacks.get(rank)
    frame, called = _FRAME.search(line), _CALLED.search(line)
    if frame is None:
        if last is not None and called is not None:
            last.text = f"an exception in {called[1]}, whose own words are cut off"
        return last is not None and called is not None
    if last is None:
        last = ErrorLine(RAISED, "", 0, -1, "", *where, rank=rank, time_s=time_s, data={"cut": True})
        state.tracebacks[rank] = last
        state.error(last)
    at = f"{frame['file'].rpartition('/')[2]}:{frame['line']}"
    last.text = f"an exception in {frame['function']} ({at}), whose own words are cut off"
    return True


def _process(ended: re.Match[str], state: LogState, where: tuple[str, int], time_s: float | None) -> bool:
    """Take a line that a process ended, as its launcher says it: the first that it did not end itself is the others' reason.

    A number within a node is no rank of the job, and several tasks of one line are none of them the first.
    """
    told = ended["tasks"] or ended["of"] or ended["rank"]
    is_rank = told.isdecimal() and not ended["local"]
    text = (ended["how"] or ended["by"] or "").strip()
    is_first = not _BY_LAUNCHER.search(text) and not any(each.data.get("root") for each in state.errors)
    data = {"root": is_first, "who": "" if is_rank else f"{'local rank' if ended['local'] else 'tasks'} {told}"}
    host = ended["node"] or ended["on"] or ""
    error = ErrorLine(EXIT, host, 0, -1, text, *where, rank=int(told) if is_rank else None, time_s=time_s, data=data)
    error.status = int(ended["code"]) if ended["code"] else None
    state.error(error)
    return True


def _exception(line: str, state: LogState, where: tuple[str, int], rank: int | None, time_s: float | None) -> bool:
    said = _EXCEPTION.match(line)
    of_nccl = _OF_NCCL.search(line)
    if said is None or _CODE.match(line):
        return _CODE.match(line) is not None
    what = of_nccl["what"].strip() if of_nccl else said["what"]
    if (cut := state.tracebacks.pop(rank, None)) is not None and cut in state.errors:
        state.errors.remove(cut)  # its own words are here
    told = {"name": said["name"], "at": of_nccl["at"] if of_nccl else ""}
    state.error(ErrorLine(RAISED, "", 0, -1, f"{said['name']}: {what}", *where, rank=rank, time_s=time_s, data=told))
    return of_nccl is None or "NCCL version" not in line  # a version is read by another reader


def _after_last(line: str, state: LogState, where: tuple[str, int]) -> bool:
    """Take NCCL's own words, which stand below "Last error:", as those of the last exception."""
    if not state.last_error or state.last_error != (where[0], where[1] - 1) or not line.strip():
        return False
    state.last_error = None
    error = next((each for each in reversed(state.errors) if each.kind == RAISED), None)
    if error is None:
        return False
    error.data["last"] = line.strip()[:300]
    return True


def _failure(name: str, value: str, state: LogState, where: tuple[str, int]) -> bool:
    """Take a field of torchrun's summary; its host and rank come before its exit code."""
    if name == "host":
        state.error(ErrorLine(EXIT, value, 0, -1, "", *where, data={"root": state.is_root_next}))
        state.is_root_next = False
        return True
    error = next((each for each in reversed(state.errors) if each.kind == EXIT and not each.data.get("child")), None)
    if error is None or error.file != where[0] or where[1] - error.line > MOST_FIELDS:
        error = ErrorLine(EXIT, "", 0, -1, "", *where, data={"root": False})
        state.error(error)
    if name == "rank" and (number := re.match(r"\d{1,7}", value)):
        error.rank = int(number[0])
    elif name == "exitcode" and (code := re.match(r"-?\d{1,5}", value)):
        error.status = int(code[0])
    elif name == "traceback" and (signal := _SIGNAL.search(value)):
        error.text = f"signal {signal['number']} ({signal['name']})"
    return True
