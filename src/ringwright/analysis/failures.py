"""What ended a process, by the words of the first error: which warnings are shadows of another's end, and what the rest means.

Words are those of NCCL's and RCCL's sources (``misc/``, ``transport/``, ``bootstrap.cc``), of aws-ofi-nccl and of libfabric.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ringwright.analysis.document import Row


class FailureCause(NamedTuple):
    """What words mean, in one clause, and the command that shows or mends it."""

    meaning: str
    command: str


# A peer that has gone, or a helper thread that passes an error on: what another process met came before.
_SHADOW = re.compile(
    r"connection closed by (?:remote )?peer|connection reset|broken pipe|\[(?:service|progress) thread\]|\[proxy service|"
    r"socket (?:recv|send) failed|async(?:hronous)? error|failed to execute operation|status=5\b",
    re.IGNORECASE,
)
_FAILS = re.compile(
    r"\b(?:fail(?:ed|ure|s)?|errors?|unable|cannot|could not|not found|no such|refused|timed out|mismatch|invalid|exceeded|"
    r"unhandled|aborted|exception|truncated|duplicate|insufficient)\b",
    re.IGNORECASE,
)
_CAUSES = [  # the first that fits
    (
        r"failed to extend /dev/shm|no space left on device",
        "the shared memory of the host or container is too small",
        "df -h /dev/shm",
    ),
    (
        r"dev/shm|shared memory segment|shmutils",
        "memory that processes of a host share could not be set up",
        "df -h /dev/shm",
    ),
    (
        r"(?:ibv_\w+|regist\w+).{0,80}cannot allocate memory",
        "a limit of locked memory, or of what the NIC can hold, is reached",
        "ulimit -l",
    ),
    (r"duplicate gpu detected", "two ranks were given the same GPU", "echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES"),
    (r"out of memory", "the GPU's memory is full", "nvidia-smi --query-gpu=memory.used,memory.total --format=csv"),
    (r"too many open files", "the limit of open files is reached", "ulimit -n"),
    (
        r"driver version is insufficient",
        "the driver is older than the CUDA that the program was built for",
        "nvidia-smi",
    ),
    (
        r"provider \w+ output empty list|no eligible providers|no providers? (?:was |were )?found|unable to find.{0,40}provider",
        "libfabric finds no provider of the network (an EFA device that the container does not see, or no driver)",
        "fi_info -p efa",
    ),
    (
        r"ibv_modify_qp failed|ibv_create_ah|local qp operation",
        "the NIC refuses the path to its peer: another GID index, subnet or MTU",
        "show_gids",
    ),
    (
        r"no socket interface found|no usable interface|bootstrap.{0,60}no interface",
        "no interface has the name that NCCL_SOCKET_IFNAME asks for",
        "ip -brief address",
    ),
    (
        r"message truncated",
        "the ranks sent each other messages of different size: other calls, other releases, or a stranger on the port",
        "NCCL_DEBUG=VERSION",
    ),
    (
        r"connect(?:ion)?\b.{0,120}(?:no route to host|connection refused|timed out|network is unreachable)",
        "a host is not reached over the interface that NCCL took",
        "ip route get HOST",
    ),
    (r"network [\w ]{1,40} not found", "the network that NCCL_NET asks for was not loaded", "echo $NCCL_NET"),
]
_KNOWN = [(re.compile(words, re.IGNORECASE), FailureCause(*told)) for words, *told in _CAUSES]


def cause_of(text: str) -> FailureCause | None:
    """Return what the words of an error mean; None where they are not known."""
    return next((cause for words, cause in _KNOWN if words.search(text)), None)


def is_failure(text: str) -> bool:
    """Whether a warning says that something went wrong, and not merely how the job is set up."""
    return cause_of(text) is not None or _FAILS.search(text) is not None


def first_of(rows: list[Row]) -> Row | None:
    """Return the first warning of a failure that is no shadow of another process's end; else of any failure, or of all."""
    failing = [row for row in rows if is_failure(row["text"] or "")] or rows
    return next((row for row in failing if not _SHADOW.search(row["text"] or "")), failing[0] if failing else None)
