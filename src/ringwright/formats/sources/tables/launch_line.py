"""The line that started ranks: mpirun, mpiexec, srun; how many ranks and nodes it asked for, and whose library it is.

Open MPI starts as many ranks as the hosts that it is given have slots, where it is given no number.
"""

from __future__ import annotations

import re

_LAUNCHER = re.compile(
    r"(?:^|[\s/$])(?P<launcher>mpirun_rsh|mpirun|prterun|mpiexec(?:\.hydra)?|srun|prun|jsrun|aprun)\s+-"
)
_RANKS = re.compile(r"\s(?:-np|-n|--n|--np|--ntasks)[ =]?(\d{1,7})\b")
_SLOTS = re.compile(r"\s(?:-H|--host)[ =](\S{1,4000})")
_ON_A_NODE = re.compile(
    r"\s(?:-ppn|--ppn|-perhost|-npernode|--npernode|--ntasks-per-node|(?:--map-by|-map-by) ppr:(?=\d+:node))[ =]?(\d{1,5})\b"
)
_NODES = re.compile(r"\s(?:--nodes[ =]|-N ?)(\d{1,6})\b")
# The rest of the line may name hosts and users, and is not kept.
_COMPONENTS = re.compile(r"\s--?mca +(coll_\w{1,60}|coll) +([\w,^-]{1,80})")
_LIBRARIES = (
    ("open-mpi", re.compile(r"\s--?mca\s|\bOMPI_MCA_|\bprterun\b")),
    ("intel-mpi", re.compile(r"\bI_MPI_")),
    ("mvapich", re.compile(r"\bMV2_|\bMVP_|\bmpirun_rsh\b")),
    ("mpich", re.compile(r"\bMPIR_CVAR_|\bMPICH_")),
)


def launched(line: str) -> dict[str, str] | None:
    """Return what a line says that starts ranks: ``components`` of collectives, ``ranks``, ``nodes``, ``library``; else None."""
    match = _LAUNCHER.search(line)
    if match is None:
        return None
    text = line[match.start() :]
    chosen = ", ".join(f"{name} {value}" for name, value in _COMPONENTS.findall(line)[:20])
    said = {"components": chosen} if chosen else {}
    slots = _slots(text)
    told = _RANKS.search(text)
    ranks = int(told[1]) if told else sum(slots)
    if ranks:
        said["ranks"] = str(ranks)
        said |= {} if told else {"ranks from": "the slots of its hosts"}
    if nodes := _nodes(text, match["launcher"], ranks, slots):
        said["nodes"] = str(nodes)
    library = next((name for name, pattern in _LIBRARIES if pattern.search(line)), "")
    return said | ({"library": library} if library else {})


def _nodes(text: str, launcher: str, ranks: int, slots: list[int]) -> int:
    """Return the number of nodes, 0 where it is not told."""
    each, nodes = _ON_A_NODE.search(text), _NODES.search(text)
    if nodes and launcher == "srun":
        return int(nodes[1])
    each = each or nodes  # Open MPI's -N is ranks on a node
    if each and int(each[1]):
        return -(-ranks // int(each[1]))
    return len(slots) if slots and ranks == sum(slots) else 0


def _slots(text: str) -> list[int]:
    """Return the slots of each host; none where one has no number."""
    hosts = told[1].split(",") if (told := _SLOTS.search(text)) else []
    slots = [host.rpartition(":")[2] for host in hosts]
    return [int(each) for each in slots] if all(each.isdecimal() and len(each) < 6 for each in slots) else []
