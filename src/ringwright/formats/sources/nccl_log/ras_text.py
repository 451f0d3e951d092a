"""What NCCL's RAS client prints (2.24 and later, ``src/ras/client_support.cc``): groups, statuses, who is missing or dead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ringwright.formats.sources.launchers import plain

if TYPE_CHECKING:
    from ringwright.formats.sources.nccl_log.state import LogState

STATUSES = ("RUNNING", "INIT", "FINALIZE", "ABORT", "UNKNOWN", "NOCOMM", "MIXED")
INCOMPLETE, DEAD = "INCOMPLETE", "DEAD"

_GROUP = re.compile(
    r"^\s*\d{1,6}\s+(?P<comms>\d{1,7})\s+(?P<nodes>\d{1,7})\s+(?P<a_node>\d{1,6}(?:-\d{1,6})?)\s+(?P<size>\d{1,8})\s+"
    rf"(?P<ranks>\d{{1,8}})\s+(?P<status>{'|'.join(STATUSES)})\s+(?P<errors>[A-Z]{{2,12}})\s*$"
)
_HEADER = re.compile(r"^\s*(?:#\d{1,6}-\d{1,6} \((?P<comm>[0-9a-f]{8,16})\) )?(?P<what>[A-Z]{4,12})\s*$")
_COUNT = re.compile(
    r"\b(?P<ranks>\d{1,7}) ranks? (?:have|has) (?:launched up to operation (?P<op>\d{1,18})|status (?P<status>[A-Z]+))\b"
)
_OP = re.compile(r"ranks have different (?P<op>\w{1,40}) operation counts")
_RANK = re.compile(
    r"Rank (?P<rank>\d{1,7}) -- GPU (?P<gpu>\d{1,4}) managed by process (?P<pid>\d{1,10}) on node (?P<node>\S{1,255})"
)
_MISSING = re.compile(r"The missing ranks?: (?P<ranks>\d{1,7}(?:, ?\d{1,7})*)")
_PROCESS = re.compile(r"Process (?P<pid>\d{1,10}) on node (?P<node>\S{1,255}) managing GPUs? (?P<gpus>[\d, ()]{1,200})")
_SAYS_LITTLE = re.compile(
    r"Missing communicator data from \d+|\d+ job process(?:es)? (?:is|are) considered dead|Encountered \d+ communication timeout|"
    r"Communicator ranks have different"
)
MARK = (
    r"launched up to|have status|has status|managed by process|managing GPU|#\d+-\d+ \(|missing rank|Missing communicator|"
    r"considered dead|communication timeout|different \w+ operation counts|different status|\b[A-Z]{4,12}\s*$|"
    + "|".join(f" {each} +[A-Z]" for each in STATUSES)
)
NEEDLES = [
    b"launched up to operation",
    b" managed by process ",
    b" managing GPU",
    b"missing rank",
    b" have status ",
    b"considered dead",
    b"Missing communicator",
    b"communication timeout",
    b" have different ",
    b" MISMATCH",
    b"INCOMPLETE",
    b"DEAD",
    *(f" {each} ".encode() for each in STATUSES),
]


def read_ras(text: str, state: LogState, where: tuple[str, int]) -> bool:
    """Take what a line of the RAS client says into ``state.ras``; say whether it said anything.

    There: ``groups`` as the table has them, ``counts`` of ranks by the last operation they launched and ``statuses`` by status,
    ``listed`` ranks below a count, ``processes`` and ``ranks`` that are missing or dead.
    """
    ras, text = state.ras, plain(text)
    group = _GROUP.match(text)
    if group is not None:
        told = {name: int(group[name]) for name in ("comms", "nodes", "size", "ranks")}
        ras.setdefault("groups", []).append(told | {"status": group["status"], "errors": group["errors"]})
        return True
    header = _HEADER.match(text)
    if header is not None and (header["comm"] or header["what"] in (INCOMPLETE, DEAD, "TIMEOUT", "MISMATCH")):
        ras["section"] = header["what"]
        if header["comm"]:
            ras.setdefault("status", []).append((header["comm"], header["what"]))
        return True
    return _below(text, state, where)


def _below(text: str, state: LogState, where: tuple[str, int]) -> bool:
    """Take a line below a header."""
    ras = state.ras
    if (count := _COUNT.search(text)) is not None:
        told = (int(count["ranks"]), int(count["op"]) if count["op"] else count["status"])
        ras.setdefault("counts" if count["op"] else "statuses", []).append(told)
        ras.setdefault("place", f"{where[0]}:{where[1]}")
        return True
    if (rank := _RANK.search(text)) is not None:
        if ras.get("section") == INCOMPLETE:
            ras.setdefault("ranks", []).append(int(rank["rank"]))
        elif counts := ras.get("counts"):
            ras.setdefault("listed", []).append((len(counts) - 1, int(rank["rank"]), rank["node"]))
        return "section" in ras or "counts" in ras
    if (missing := _MISSING.search(text)) is not None:
        ras.setdefault("ranks", []).extend(int(each) for each in missing["ranks"].split(","))
        return True
    if (process := _PROCESS.search(text)) is not None:
        entry = [ras.get("section", INCOMPLETE), int(process["pid"]), process["node"], process["gpus"].strip()]
        ras.setdefault("processes", []).append(entry)
        return True
    if (op := _OP.search(text)) is not None:
        ras["op"] = op["op"]
    return op is not None or _SAYS_LITTLE.search(text) is not None
