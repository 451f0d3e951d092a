"""``ringwright plugin``: the NCCL profiler plug-in, built here and switched on by two variables."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ringwright.cli import reading


def plugin(
    action: Literal["build", "env"],
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    force: bool = False,
    json: bool = False,
) -> int:
    """Build the NCCL profiler plug-in with this machine's compiler, or print the lines that switch it on.

    Parameters
    ----------
    action
        build compiles it, env prints the export lines: eval "$(ringwright plugin env)".
    output
        The library, libnccl-profiler-ringwright.so in this folder unless named.
    force
        Build it anew if it exists.
    json
        Print one JSON object instead (schema ringwright.plugin/1).
    """
    from ringwright.capture.nccl_profiler import FILE_NAME, build, environment

    path = output or Path(FILE_NAME)
    if action == "build":
        path = build(path, force=force)
    variables = environment(path / FILE_NAME if path.is_dir() else path)
    if json:
        reading.print_json({"schema": "ringwright.plugin/1", "plugin": str(path), "environment": variables})
    elif action == "env":
        for name, value in variables.items():
            print(f"export {name}={shlex.quote(value)}")
    else:
        option = f" -o {shlex.quote(str(output))}" if output else ""
        print(f'wrote {path}; next: eval "$(ringwright plugin env{option})", then start the job')
    return 0
