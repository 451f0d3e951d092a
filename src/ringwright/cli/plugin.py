"""``ringwright plugin``: the NCCL profiler plug-in, built here and switched on by two variables."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from ringwright import called
from ringwright.cli import options, reading


def plugin(
    action: Literal["build", "env"],
    *,
    output: options.Target = None,
    force: options.Force = False,
    json: options.Json = False,
) -> int:
    """Build the NCCL profiler plug-in with this machine's compiler, or print the lines that switch it on.

    Parameters
    ----------
    action
        build compiles it, env prints the export lines.
    output
        The library, libnccl-profiler-ringwright.so in this folder unless named.
    force
        Build it anew if it exists.
    json
        Print one JSON object instead (schema ringwright.plugin/1).

    Examples
    --------
    ringwright plugin build --force
    eval "$(ringwright plugin env)"
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
        following = called.as_called(f'eval "$(ringwright plugin env{option})"')
        print(f"wrote {path}; next: {following}, then start the job")
    return 0
