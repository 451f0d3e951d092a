"""``ringwright plugin``: the plug-ins for NCCL, built here and switched on by two variables."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from ringwright.cli import options, reading
from ringwright.ground import invocation


def plugin(
    action: Literal["build", "env"],
    kind: Literal["profiler", "tuner"] = "profiler",
    *,
    output: options.Target = None,
    table: Path = Path("tuner.csv"),
    force: options.Force = False,
    json: options.Json = False,
) -> int:
    """Build a plug-in for NCCL with this machine's compiler, or print the lines that switch it on.

    Parameters
    ----------
    action
        build compiles it, env prints the export lines.
    kind
        profiler records what NCCL does, tuner lets it take what a table says.
    output
        The library, libnccl-profiler-ringwright.so or libnccl-tuner-ringwright.so in this folder unless named.
    table
        Of the tuner: the CSV that it follows, as export --to nccl-tuner-csv writes it.
    force
        Build it anew if it exists.
    json
        Print one JSON object instead (schema ringwright.plugin/1).

    Examples
    --------
    ringwright plugin build --force
    ringwright plugin build tuner --force
    eval "$(ringwright plugin env)"
    """
    from ringwright.capture import nccl_profiler, nccl_tuner

    is_tuner = kind == "tuner"
    name = nccl_tuner.TUNER_FILE_NAME if is_tuner else nccl_profiler.FILE_NAME
    path = output or Path(name)
    if action == "build":
        path = (nccl_tuner.build_tuner if is_tuner else nccl_profiler.build)(path, force=force)
    library = path / name if path.is_dir() else path
    variables = nccl_tuner.tuner_environment(library, table) if is_tuner else nccl_profiler.environment(library)
    if json:
        reading.print_json({"schema": "ringwright.plugin/1", "plugin": str(path), "environment": variables})
    elif action == "env":
        for variable, value in variables.items():
            print(f"export {variable}={shlex.quote(value)}")
    else:
        option = f" -o {shlex.quote(str(output))}" if output else ""
        which = " tuner" if is_tuner else ""
        following = invocation.as_called(f'eval "$(ringwright plugin env{which}{option})"')
        print(f"wrote {path}; next: {following}, then start the job")
    return 0
