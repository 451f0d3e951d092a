"""What ranks and hosts are called in the words and pictures of a topology that was read, and how many a picture can show."""

from __future__ import annotations

from ringwright.analysis.topology_view import CommunicatorView

MOST_RANKS = 128  # beyond it a square of a ring is a host with its range of ranks
MOST_HOSTS = 128  # beyond it nothing is drawn
MOST_PICTURES = 4
UNKNOWN = "host not read"


def name_of(shown: CommunicatorView, rank: int) -> str:
    """Return the global rank of a rank where it is known, else the rank in its communicator."""
    number = shown.members[rank].global_rank
    return str(rank if number is None else number)


def hosts_of(shown: CommunicatorView) -> list[str]:
    """Return the host of each rank, :data:`UNKNOWN` where it was not read."""
    return [member.host or UNKNOWN for member in shown.members]


def shortened(host: str, wide: float) -> str:
    """Return a host's name as it fits a box: the end tells hosts apart, so the beginning goes."""
    room = max(4, int((wide - 12) / 7))
    return host if len(host) <= room else f"…{host[-room + 1 :]}"


def too_many(size: int, hosts: list[str]) -> str:
    """Say why a communicator is not drawn, or why it is folded; the empty string where every rank can be shown."""
    if len(set(hosts)) > MOST_HOSTS:
        return f"{len(set(hosts)):,} hosts are more than a picture can show; the tables and --json hold what was read"
    if size > MOST_RANKS:
        return f"{size:,} ranks are folded: a square is a host, with the first and last rank that the ring visits there"
    return ""
