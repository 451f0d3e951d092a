"""From XLA's profiler traces to a Trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringwright.formats.sources.kineto import catalogue
from ringwright.formats.sources.members import Member, whole
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.formats.sources.wire import WireError
from ringwright.formats.sources.xplane import device_events
from ringwright.formats.sources.xplane.emit import emit
from ringwright.formats.sources.xplane.job import KIND, METADATA, XlaFile, XlaJob, programs
from ringwright.formats.sources.xplane.sorting import take
from ringwright.formats.sources.xplane.space import Xplane, planes
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

_REMEDY = "record with jax.profiler.trace(FOLDER), then ringwright summary FOLDER"
_RELEASES = ("jax_version", "jaxlib_version", "cpu_version", "cuda_version", "device_vendor", "tf_version")


def read_xplane(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's files, one per host; InputError where none holds a plane that can be read."""
    job = XlaJob(Gathered(KIND))
    kernels = catalogue.load()
    for member in job.gathered.members(sources, progress):
        _read(job, member, kernels)
    if not job.calls and not any(file.steps or any(map(len, file.frames)) for file in job.files):
        what = job.refusals[0] if job.refusals else "no plane holds an operation of a device, or a step"
        raise InputError(f"no XLA profiler trace: {what}", where=", ".join(s.name for s in sources[:3]), remedy=_REMEDY)
    emission = emit(job)
    libraries = sorted({call.kernel_class for call in job.calls if call.kernel_class in ("nccl", "rccl")})
    return job.gathered.trace(
        world=len(emission.ranks) or None, library=libraries[0] if libraries else None, origin_ns=emission.origin_ns
    )


def _read(job: XlaJob, member: Member, kernels: catalogue.Catalogue) -> None:
    """Read one file: first what programs and marks say, then what was executed."""
    file = XlaFile(member.name)
    held: list[Xplane] = []
    for part in planes(whole(member)):
        if isinstance(part, Xplane):
            held.append(part)
        elif isinstance(part, str):
            file.host = file.host or part[:200]
        else:
            _refuse(job, file, str(part))
    if not held:
        return
    job.files.append(file)
    job.gathered.inputs.append(file.name)
    file.origin_ns, file.wall_ns = device_events.origin_ns(held), device_events.session_ns(held)
    for xplane in held:
        with _guarded(job, file, xplane):
            _facts(job, file, xplane)
    marks = device_events.HostMarks()
    hosts: list[pl.DataFrame] = []
    for xplane in (each for each in held if each.name == device_events.HOST):
        with _guarded(job, file, xplane):
            hosts.append(device_events.on_host(xplane, file.origin_ns))
            device_events.marks(hosts[-1], marks)
    file.iterations, file.steps = marks.iterations(), marks.steps
    job.gathered.note(file.name, "understood", "steps and launches", len(marks.steps) + len(marks.launches))
    streams = [xplane for xplane in held if device_events.DEVICE.match(xplane.name) and xplane.lines]
    _number(job, file, streams, marks)
    for xplane in streams:
        with _guarded(job, file, xplane):
            _take(job, file, _of_device(xplane, file.origin_ns), _kernels_of(xplane, kernels))
    for frame in hosts if not streams else ():  # beside streams they are the launches of what these show
        with _guarded(job, file, held[0]):
            _take(job, file, device_events.operations(frame), None)


@contextmanager
def _guarded(job: XlaJob, file: XlaFile, xplane: Xplane) -> Iterator[None]:
    """Read on with the next plane where one is damaged, and say so."""
    try:
        yield
        for reason in xplane.damage:
            raise WireError(reason)
    except (WireError, RecursionError, ValueError, IndexError, KeyError) as error:
        _refuse(job, file, f"the plane {xplane.name[:80]}: {error}")


def _refuse(job: XlaJob, file: XlaFile, reason: str) -> None:
    job.refusals.append(reason)
    job.gathered.note(file.name, "refused", reason)
    job.gathered.lose(f"{file.name}: {reason}")


def _facts(job: XlaJob, file: XlaFile, xplane: Xplane) -> None:
    """Take the programs of the plane that carries them, and what a plane says of releases and devices."""
    own = xplane.own_stats()
    for name in _RELEASES:
        if isinstance(own.get(name), str):
            job.gathered.claim(name, own[name], file.name)
    if xplane.name == METADATA:
        programs(job, file, xplane)
    file.pid = file.pid or whole_number(own.get("process_id"))


def _number(job: XlaJob, file: XlaFile, streams: list[Xplane], marks: device_events.HostMarks) -> None:
    """Give the devices that the file numbers from 0 their numbers in the job, and say on what ground."""
    local = sorted({_device(xplane) for xplane in streams})
    if not local:
        return  # the host's threads name devices by their number in the job
    if len(marks.devices) == len(local):
        file.numbers = dict(zip(local, sorted(marks.devices), strict=True))
        return
    used = 1 + max((device for other in job.files if other is not file for device in other.devices), default=-1)
    file.numbers = {number: used + number for number in local}
    if used:
        note = "no launch tells the global numbers of these devices: they follow on those of the files before"
        job.gathered.claim("rank", used, file.name, ground="assumed", confidence=0.5, note=note)


def _device(xplane: Xplane) -> int:
    match = device_events.DEVICE.match(xplane.name)
    return int(match["number"]) if match else 0


def _of_device(xplane: Xplane, origin: int) -> pl.DataFrame:
    import polars as pl

    return device_events.on_device(xplane, origin).with_columns(pl.lit(_device(xplane), dtype=pl.Int64).alias("device"))


def _kernels_of(xplane: Xplane, kernels: catalogue.Catalogue) -> catalogue.Catalogue | None:
    """Return the catalogue of kernels where a device has kernels: a TPU's line shows the operations themselves."""
    return None if xplane.name.startswith("/device:TPU") else kernels


def _take(job: XlaJob, file: XlaFile, frame: pl.DataFrame, kernels: catalogue.Catalogue | None) -> None:
    job.gathered.note(file.name, "understood", "operations of devices", len(frame))
    without = frame["device"].null_count()
    if without:
        reason = "operations without their device (this release of XLA does not record it): no rank"
        job.gathered.note(file.name, "other", reason, without)
        job.gathered.lose(f"{file.name}: {without} {reason}")
    take(job, file, frame, kernels)
