"""``ringwright convert``: a Trace in another format, redacted on demand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.cli import options, reading
from ringwright.ground import invocation, stores
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.executors.fan_out import FanOut


def convert(
    *paths: str,
    sample: options.Sample = False,
    output: options.TargetOrAddress = None,
    format: str = "parquet",  # noqa: A002 - the option's public name
    redact: bool = False,
    salt: str = "",
    force: options.Force = False,
    json: options.Json = False,
    executor: options.Executor = None,
) -> int:
    """Write what was read as Parquet, CSV or JSON lines, a timeline or metrics, or the log itself with its names redacted.

    Parameters
    ----------
    paths
        Logs, folders or captures; - reads standard input.
    output
        The folder (parquet, csv, chakra) or file (the others) to write.
    format
        parquet is the capture that every verb reads again; perfetto is one timeline of all ranks for ui.perfetto.dev,
        prometheus a textfile of bandwidths and times, chakra an execution trace of each rank for ASTRA-sim; log, the log
        itself, needs --redact; parts, an archive of what each file says, which
        read together with those of other nodes is one recording. All of them stand below.
    redact
        Replace hosts, addresses, paths and user names, each by the same word everywhere.
    salt
        Make the replacements equal over several runs with the same salt.
    force
        Overwrite the output if it exists.
    json
        Print what was written as one JSON object (schema ringwright.convert/1).

    Examples
    --------
    ringwright convert --sample -o job.trace --force
    """
    if output is None:
        raise UsageError("no output is named", remedy="ringwright convert LOG -o DIR")
    from ringwright.executors.fan_out import fan_out

    with stores.delivered(output, force=force) as local, fan_out(executor) as fan:
        written = _write(reading.inputs(paths, sample=sample), local, format, redact, salt, force, fan)
    named = stores.target(output)
    if json:
        outputs = [named + str(path).removeprefix(str(local)) for path in written]
        reading.print_json({"schema": "ringwright.convert/1", "outputs": outputs, "executor": fan.account.document()})
    else:
        is_read = format in ("parquet", "log", "parts")
        following = f"; next: ringwright summary {shlex.quote(named)}" if is_read else ""
        print(f"wrote {named}{invocation.as_called(following)}")
    return 0


def _write(paths: list[str], output: Path, form: str, redact: bool, salt: str, force: bool, fan: FanOut) -> list[Path]:
    from ringwright.formats.exports import find

    if form == "log":
        from ringwright.formats.exports.log import log

        if not redact:
            raise UsageError("--format log rewrites a log", remedy="add --redact")
        return log(reading.raw(paths), output, salt=salt, force=force)
    if form == "parts":
        if redact:
            raise UsageError("parts are joined by their names", remedy="read the parts, and redact what is read")
        return _write_parts(paths, output, force, fan)
    export = find(form, "trace")
    trace = reading.trace(paths, events="all", executor=fan)
    if redact:
        from ringwright.formats.exports.redact import redact as redacted

        trace = redacted(trace, salt=salt)
    if form == "perfetto":
        from ringwright.jobs.one_clock import one_clock

        trace = one_clock(trace)
    return export.write(trace, output, force=force)


def _write_parts(paths: list[str], output: Path, force: bool, fan: FanOut) -> list[Path]:
    from ringwright.formats.exports.placement import claim_file
    from ringwright.formats.sources import part_files, parts
    from ringwright.formats.sources.captures import kinds_of, parted

    target = claim_file(output, force=force)
    told = parts.apart([kinds_of(each) for each in parted(paths).sources], fan, None)
    return part_files.write(target, parts.parts(told))


def every_format() -> str:
    """Return the names that --format takes."""
    from ringwright.formats.exports import exports

    return "Formats: " + ", ".join([*exports("trace"), "log", "parts"])
