"""What the links carried and what the machine had to do for it, looked at ten times a second."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.ground.errors import RingwrightError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright_lab.network.bridges import UserSwitch
    from ringwright_lab.network.capture import Capture
    from ringwright_lab.network.fault_injector import FaultInjector
    from ringwright_lab.network.namespaces import Inside

EVERY_S = 0.1
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass
class CounterSample:
    """One look. ``size_bytes``, ``packets`` and ``drops`` are totals per link; the rest holds since the look before."""

    mono_s: float
    size_bytes: list[int]
    packets: list[int]
    drops: list[int]
    rates: list[float]
    is_disturbed: bool
    busy: float = 0.0  # share of all cores
    pressure: float = 0.0  # share of the time in which some process waited for a core
    busiest: float = 0.0  # cores used by the busiest process inside
    busiest_name: str = ""
    cores: float = 0.0  # cores used by all processes inside
    waited: float | None = None  # share of the time in which a process inside waited for a core, the most; None: untold
    overruns: int = 0  # frames the switch in user space was too slow for, in all
    switched: dict[str, dict[str, int]] = field(default_factory=dict)


def devices(pid: int) -> dict[str, tuple[int, int, int]]:
    """Return bytes, packets and drops sent by each interface of the namespace of a process."""
    by_device = {}
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        values = numbers.split()
        by_device[name.strip()] = (int(values[8]), int(values[9]), int(values[11]))
    return by_device


def machine() -> tuple[float, float, float]:
    """Return seconds of all cores, those of them busy, and those in which a process waited for a core (0 where untold)."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    ticks = [int(word) for word in words]
    total, idle = sum(ticks), ticks[3] + ticks[4]
    waited_s = 0.0
    with suppress(OSError, ValueError, IndexError):
        waited_s = int(Path("/proc/pressure/cpu").read_text().split("total=", 1)[1].split()[0]) * 1e-6
    return total * TICK_S, (total - idle) * TICK_S, waited_s


@dataclass(frozen=True)
class Used:
    """What a process has had: seconds on cores, and seconds of readiness without one (None where the kernel tells not)."""

    name: str
    ran_s: float
    waited_s: float | None


def times(family: Path) -> dict[int, Used]:
    """Return what each process in a PID namespace has had so far, all its threads together."""
    wanted, used = family.readlink(), {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "ns/pid").readlink() == wanted:
                name, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
                values = rest.split()
                used[int(path.name)] = Used(name, (int(values[11]) + int(values[12])) * TICK_S, _waited_s(path))
    return used


def _waited_s(process: Path) -> float | None:
    try:
        return max(int(task.read_text().split()[1]) for task in process.glob("task/*/schedstat")) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


def _busiest(before: dict[int, Used], now: dict[int, Used], since_s: float) -> tuple[float, float, str, float | None]:
    """Return cores of the busiest process, cores of all, its name, and the longest wait of any as a share of the time."""
    none = Used("", 0.0, 0.0)
    ran = [((used.ran_s - before.get(pid, none).ran_s) / since_s, used.name) for pid, used in now.items()]
    waits = [
        (used.waited_s - (before.get(pid, none).waited_s or 0.0)) / since_s
        for pid, used in now.items()
        if used.waited_s is not None
    ]
    most, name = max(ran, default=(0.0, ""))
    return most, sum(share for share, _ in ran), name, max(waits, default=None)


class Sampler:
    """A thread that looks, writes ``counters.jsonl`` and keeps the samples."""

    def __init__(
        self, inside: Sequence[Inside], injector: FaultInjector, switches: Sequence[UserSwitch], capture: Capture
    ) -> None:
        self.samples: list[CounterSample] = []
        self.failure = ""
        self._inside, self._injector, self._switches, self._capture = inside, injector, switches, capture
        self._family = Path(f"/proc/{inside[0].pid}/ns/pid")
        self._machine, self._times = machine(), times(self._family)
        self._times_s = time.monotonic()
        self._last: tuple[float, float, str, float | None] = (0.0, 0.0, "", None)
        self._lock, self._end = threading.Lock(), threading.Event()
        self.look()
        self._thread = threading.Thread(target=self._watch, name="lab counters", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        due_s = time.monotonic()
        while not self._end.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s + EVERY_S, time.monotonic())
            try:
                self.look()
            except (OSError, RingwrightError) as error:
                if not self._end.is_set():
                    self.failure = str(error)
                    self._capture.event("counters failed", why=self.failure)
                return

    def look(self) -> CounterSample:
        """Take a sample now."""
        with self._lock:
            sent = [devices(inside.pid) for inside in self._inside]
            ports = self._injector.spec.ports
            rows = [sent[port.node][port.name] for port in ports]
            sample = CounterSample(
                time.monotonic(),
                [row[0] for row in rows],
                [row[1] for row in rows],
                [row[2] for row in rows],
                rates=self._injector.rates,
                is_disturbed=self._injector.is_disturbed,
            )
            self._add_machine(sample)
            self._add_switches(sample)
            self.samples.append(sample)
            self._write(sample)
            return sample

    def _add_machine(self, sample: CounterSample) -> None:
        before, self._machine = self._machine, machine()
        total_s, busy_s, waited_s = (now - then for now, then in zip(self._machine, before, strict=True))
        sample.busy = busy_s / total_s if total_s > 0 else 0.0
        elapsed_s = sample.mono_s - self.samples[-1].mono_s if self.samples else EVERY_S
        sample.pressure = min(1.0, waited_s / elapsed_s) if elapsed_s > 0 else 0.0
        since_s = sample.mono_s - self._times_s
        if since_s >= 4 * EVERY_S:  # processes are counted in ticks of 10 ms: seldom, and then exactly
            now = times(self._family)
            self._last = _busiest(self._times, now, since_s)
            self._times, self._times_s = now, sample.mono_s
        sample.busiest, sample.cores, sample.busiest_name, sample.waited = self._last

    def _add_switches(self, sample: CounterSample) -> None:
        for switch in self._switches:
            answer = switch.order()
            sample.switched.update(answer["links"])
            sample.overruns += sum(answer["overrun"].values())

    def _write(self, sample: CounterSample) -> None:
        spec = self._injector.spec
        rows = zip(sample.size_bytes, sample.packets, sample.drops, strict=True)
        self._capture.line(
            "counters.jsonl",
            {
                "t_wall_s": time.time(),
                "t_mono_s": sample.mono_s,
                "links": {spec.link_name(link): row for link, row in enumerate(rows)},
                "switched": sample.switched,
                "busy": round(sample.busy, 3),
                "pressure": round(sample.pressure, 3),
                "cores": round(sample.cores, 2),
                "waited": sample.waited and round(sample.waited, 3),
                "busiest": [sample.busiest_name, round(sample.busiest, 2)],
                "overruns": sample.overruns,
            },
        )

    def close(self) -> None:
        """Look for the last time and end."""
        self._end.set()
        self._thread.join()
        with suppress(OSError, RingwrightError):
            self.look()
