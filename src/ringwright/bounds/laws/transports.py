"""The law of transports: the transport between two ranks is one of a closed list, spelled as NCCL and RCCL spell it.

The text after ``via`` may come from two lines that were interleaved; then it is no transport.
Source: ``src/transport/p2p.cc``, ``shm.cc``, ``net.cc`` and ``coll_net.cc`` of NVIDIA/nccl, releases 2.3 to 2.30, and RCCL.
"""

from __future__ import annotations

import re

from ringwright.bounds.laws.law import Law

_NAME = r"[A-Za-z][\w .+-]{0,39}"  # of a network plug-in: IB, Socket, IBext_v8, AWS Libfabric
_NIC = r"\d{1,4}(?:\(\d{1,7}\))?"  # its number, and the rank whose proxy drives it
_MARKS = r"(?:/GDRDMA(?:\(\w{1,16}\))?|/DMABUF|/Shared|/Flush)*"
SPELLED = (
    r"(?:P2P/(?:direct pointer|IPC|CUMEM|MNNVL|indirect/\d{1,7}\[[0-9a-fA-F]{1,16}\])(?:/read)?(?:/CE)?"
    r"|SHM(?:/(?:direct|CE)/(?:direct|CE))?|direct shared memory"
    rf"|(?:NET|COLLNET)/{_NAME}/{_NIC}{_MARKS})"
)
_WHOLE = re.compile(SPELLED)


def is_transport(spelled: str) -> bool:
    """Say whether a text is one of NCCL's transports, whole and without anything else."""
    return _WHOLE.fullmatch(spelled) is not None


def _judge(spelled: str) -> str:
    return "" if is_transport(spelled) else f"'{spelled}' is none of NCCL's transports"


LAWS = (
    Law(
        "transport",
        "a connection goes by one of NCCL's transports, spelled as NCCL spells it",
        "src/transport of NVIDIA/nccl, releases 2.3 to 2.30, and RCCL",
        _judge,
        kept=(("P2P/IPC",), ("NET/IB/0/GDRDMA",), ("SHM/direct/direct",)),
        broken=(("P2P/IPCNET/IB/0",), ("NET/",), ("",)),
    ),
)
