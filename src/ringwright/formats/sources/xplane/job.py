"""A job whose traces are being read: programs, devices, and the calls that wait until all devices are known."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.formats.sources.wire import WireError
from ringwright.formats.sources.xplane.program import CONTAINERS, Communication, HloProgram, program

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.reader_rows import Gathered
    from ringwright.formats.sources.xplane.device_events import Mark
    from ringwright.formats.sources.xplane.space import Xplane

KIND = "xplane"
METADATA = "/host:metadata"


@dataclass
class XlaFile:
    """One trace: where its clock stands, its programs, and how its devices are numbered in the job."""

    name: str
    host: str = ""
    pid: int | None = None
    wall_ns: int | None = None
    origin_ns: int = 0
    programs: dict[int, HloProgram] = field(default_factory=dict)  # by the number of the program
    by_name: dict[str, HloProgram | None] = field(default_factory=dict)  # None where several have the name
    numbers: dict[int, int] = field(default_factory=dict)  # number on this host -> number in the job
    iterations: dict[int, int] = field(default_factory=dict)  # run -> step
    devices: set[int] = field(default_factory=set)  # by their numbers in the job
    frames: list[pl.DataFrame] = field(default_factory=list)  # what the devices did besides communicating
    steps: list[Mark] = field(default_factory=list)

    @property
    def clock(self) -> str:
        """The clock that the file's times are of: the host's where the wall clock is known."""
        return f"host:{self.host}" if self.wall_ns is not None and self.host else f"file:{self.name}"

    def program_of(self, number: int | None, module: str) -> HloProgram | None:
        """Return the program that an operation belongs to: by its number, else by a name that one program alone has."""
        held = self.programs.get(number) if number is not None else None
        if held is not None and module in ("", held.name):
            return held
        return self.by_name.get(module)

    def own(self, device: int | None) -> int | None:
        """Return the number on this host of a device of the job."""
        return next((own for own, each in self.numbers.items() if each == device), device)


@dataclass(slots=True)
class PendingXlaCall:
    """An operation among devices that waits for the other files; times in picoseconds from the start of the session."""

    file: XlaFile
    communication: Communication
    module: str
    device: int | None
    run: int | None
    stream: str | None
    kernel: str
    kernel_class: str
    algorithm: str | None
    protocol: str | None
    start_ps: int
    end_ps: int
    nth: int  # among those of its instruction on its device in its run


@dataclass
class XlaJob:
    """All traces of one job."""

    gathered: Gathered
    files: list[XlaFile] = field(default_factory=list)
    calls: list[PendingXlaCall] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)  # every device that a communicating program names
    begun: dict[tuple[object, ...], list[PendingXlaCall]] = field(default_factory=lambda: defaultdict(list))
    refusals: list[str] = field(default_factory=list)
    _counted: dict[tuple[object, ...], int] = field(default_factory=lambda: defaultdict(int))

    def nth(self, key: tuple[object, ...]) -> int:
        """Return how many calls of this key came before, and count this one."""
        self._counted[key] += 1
        return self._counted[key] - 1


def programs(job: XlaJob, file: XlaFile, xplane: Xplane) -> None:
    """Read the compiled programs that a file carries; one that is damaged is refused alone."""
    for number, held in xplane.names.items():
        stats = xplane.stats(held.stats)
        message = stats.get("Hlo Proto", stats.get("hlo_proto"))
        if not isinstance(message, bytes):
            continue
        try:
            made = program(message)
        except (WireError, RecursionError, ValueError) as error:
            job.gathered.note(file.name, "refused", f"a program: {error}", example=held.name)
            job.gathered.lose(f"{file.name}: the program {held.name[:80]} cannot be read: {error}")
            continue
        told = stats.get("program_id", number)
        file.programs[told if isinstance(told, int) else number] = made
        file.by_name[made.name] = None if made.name in file.by_name else made
        if made.assignment.is_known and made.communications:
            job.devices |= set(made.assignment.every())


def is_container(held: HloProgram | None, name: str) -> bool:
    """Whether an operation only holds others that have events of their own: a loop, a call, a branch."""
    opcode = held.opcodes.get(name, "") if held else name.split(".", 1)[0]
    return opcode in CONTAINERS
