"""How much memory a layout will take, estimated before it is made, so that nothing is begun that does not fit."""

from __future__ import annotations

from pathlib import Path

BYTES_PER_MOVE = 240  # measured: 8.4 million moves of a ring took 1.9 GB, layout, order and run together
BYTES_PER_PIECE = 650  # of a job's operations; measured: 1.4 million slices of VGG-16 took 0.9 GB
_MEMINFO = Path("/proc/meminfo")
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def available_bytes() -> int | None:
    """Return the memory that a process may still take here, None where the system does not say."""
    try:
        told = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines() if ":" in line)
        free = int(told["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None
    try:
        most, used = (int(path.read_text()) for path in _LIMITS)
    except (OSError, ValueError):
        return free  # no limit of a container, or "max"
    return min(free, max(0, most - used))


def shortage(count: int, what: str = "moves", bytes_each: int = BYTES_PER_MOVE) -> str:
    """Return why so many moves (or other objects of ``bytes_each`` B) do not fit into memory; "" where they fit."""
    free, needed = available_bytes(), count * bytes_each
    if free is None or needed <= free:
        return ""
    return f"{count:,} {what} take about {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"
