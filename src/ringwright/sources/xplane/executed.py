"""What the devices executed: events of a device's streams, or of the host's threads that stand for devices (JAX on the CPU).

Streams say kernel and HLO operation; an event of a thread says the operation, its program, the run, and the device it stands for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.sources.xplane.space import MOST_PS, PS_PER_NS, occurrence

if TYPE_CHECKING:
    from ringwright.sources.xplane.space import EventName, Plane, StatValue, TraceLine

DEVICE = re.compile(r"/device:(?P<kind>[A-Za-z_]+):(?P<number>\d{1,6})")
HOST = "/host:CPU"
# Lines of a device that repeat its streams from another side: modules, steps, the framework's names.
_DERIVED = re.compile(r"XLA Modules|Steps|Framework|Source|XLA TraceMe|Launch Stats|Name Scope|Step", re.IGNORECASE)
_OPERATIONS = re.compile(r"XLA Ops", re.IGNORECASE)
_LOOKS = 4  # events of one name that are looked at before it is passed over
_UNIX_NS = 10**17  # a line that begins later counts from 1970, not from the start of the session


@dataclass(slots=True)
class Executed:
    """One operation on one device; times in picoseconds from the start of the session."""

    device: int | None
    name: str  # the kernel, or the operation where there is no other name
    hlo: str  # the operation's name in its program, empty where none is recorded
    module: str
    program: int | None
    run: int | None
    start_ps: int
    duration_ps: int
    stream: str | None  # threads of a host serve any device and are no streams
    memory: str = ""


@dataclass(slots=True)
class Mark:
    """A step of the training, or the launch of a run, on the host."""

    name: str
    start_ps: int
    duration_ps: int
    number: int


@dataclass
class Marks:
    """What the host says of steps and launches, and of the global numbers of its devices."""

    steps: list[Mark] = field(default_factory=list)
    launches: list[Mark] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)

    def iterations(self) -> dict[int, int]:
        """Return run -> step: the step in which a run was launched."""
        steps = sorted(self.steps, key=lambda step: step.start_ps)
        runs: dict[int, int] = {}
        at = 0
        for launch in sorted(self.launches, key=lambda launch: launch.start_ps):
            while at < len(steps) and steps[at].start_ps + steps[at].duration_ps <= launch.start_ps:
                at += 1
            if at < len(steps) and steps[at].start_ps <= launch.start_ps:
                runs[launch.number] = steps[at].number
        return runs


def origin_ns(planes: list[Plane]) -> int:
    """Return when the session began where lines count from 1970: the earliest of them; 0 where they count from the session."""
    starts = [line.start_ns for plane in planes for line in plane.lines if line.start_ns > _UNIX_NS]
    return min(starts, default=0)


def session_ns(planes: list[Plane]) -> int | None:
    """Return the wall clock of the session's start in nanoseconds from 1970, None where no plane tells it."""
    if origin_ns(planes):
        return origin_ns(planes)
    said = (plane.own_stats().get("profile_start_time") for plane in planes if plane.name == "Task Environment")
    return next((value for value in said if isinstance(value, int) and value > _UNIX_NS), None)


def _starts_ps(line: TraceLine, origin: int) -> int:
    start = line.start_ns - origin if line.start_ns > _UNIX_NS else line.start_ns
    return start * PS_PER_NS


def host_kinds(plane: Plane) -> dict[int, str]:
    """Return what the events of a name on the host are: ``operation``, ``step`` or ``launch``; by the first of each name."""
    if not {"hlo_op", "step_num", "run_id", "global_device_id"} & set(plane.stat_names.values()):
        return {}
    looked: Counter[int] = Counter()
    kinds: dict[int, str] = {}
    for line in plane.lines:
        for name, event in line.events():
            if name in kinds or looked[name] >= _LOOKS:
                continue
            looked[name] += 1
            held = plane.stats(occurrence(event).stats)
            if "hlo_op" in held:
                kinds[name] = "operation"
            elif "step_num" in held:
                kinds[name] = "step"
            elif "global_device_id" in held or ("run_id" in held and "Execute" in plane.names[name].name):
                kinds[name] = "launch"
    return kinds


def host_marks(plane: Plane, kinds: dict[int, str], origin: int, marks: Marks) -> None:
    """Note the steps and launches of a host in ``marks``."""
    for line in plane.lines:
        base = _starts_ps(line, origin)
        for name, event in line.events():
            if kinds.get(name) not in ("step", "launch"):
                continue
            held = occurrence(event)
            stats = plane.stats(held.stats)
            for key, marked in (("step_num", marks.steps), ("run_id", marks.launches)):
                number = stats.get(key)
                if isinstance(number, int) and held.duration_ps >= 0:
                    marked.append(Mark(plane.names[name].name, base + held.start_ps, held.duration_ps, number))
            device = stats.get("global_device_id")
            if isinstance(device, int) and 0 <= device < 1 << 31:
                marks.devices.add(device)


def on_host(plane: Plane, kinds: dict[int, str], origin: int) -> Iterator[Executed]:
    """Yield the operations that threads of the host executed for a device."""
    for line in plane.lines:
        base = _starts_ps(line, origin)
        for name, event in line.events():
            if kinds.get(name) != "operation":
                continue
            held = occurrence(event)
            stats = plane.stats(held.stats)
            device = stats.get("device_ordinal")
            made = _executed(plane.names[name], stats, base + held.start_ps, held.duration_ps, None)
            if made is not None:
                made.device = device if isinstance(device, int) and 0 <= device < 1 << 31 else None
                yield made


def on_device(plane: Plane, origin: int) -> Iterator[Executed]:
    """Yield what the streams of a device executed, or its line of operations where it has no streams."""
    match = DEVICE.match(plane.name)
    number = int(match["number"]) if match else None
    streams = [line for line in plane.lines if not _DERIVED.search(line.name) and not _OPERATIONS.search(line.name)]
    for line in streams or [line for line in plane.lines if _OPERATIONS.search(line.name)]:
        base = _starts_ps(line, origin)
        for name, event in line.events():
            held = occurrence(event)
            known = plane.names.get(name)
            if held.is_count or known is None:
                continue
            stats = plane.stats(known.stats) | plane.stats(held.stats)
            made = _executed(known, stats, base + held.start_ps, held.duration_ps, line.name)
            if made is not None:
                made.device = number
                if not streams and not made.hlo:
                    made.hlo = known.shown or known.name.split(" ", 1)[0].lstrip("%")
                yield made


def _executed(
    known: EventName, stats: dict[str, StatValue], start_ps: int, duration_ps: int, stream: str | None
) -> Executed | None:
    """Return an event, None where its time is none."""
    if duration_ps < 0 or not -MOST_PS < start_ps < MOST_PS or duration_ps > MOST_PS:
        return None
    hlo, module, program, run, memory = (
        stats.get(key) for key in ("hlo_op", "hlo_module", "program_id", "run_id", "memcpy_details")
    )
    return Executed(
        None,
        known.name[:4096],
        hlo if isinstance(hlo, str) else "",
        module if isinstance(module, str) else "",
        program if isinstance(program, int) else None,
        run if isinstance(run, int) else None,
        start_ps,
        duration_ps,
        stream[:200] if stream is not None else None,
        memory if isinstance(memory, str) else "",
    )
