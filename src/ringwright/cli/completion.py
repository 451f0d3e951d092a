"""``ringwright --completion``: what a shell needs to complete verbs and options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ringwright.ground import drafts, invocation


def completion(
    shell: Literal["bash", "zsh", "fish"],
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    force: bool = False,
) -> int:
    """Print the completion of a shell: bash: eval "$(ringwright --completion bash)".

    Parameters
    ----------
    shell
        bash, zsh or fish.
    output
        Write it here instead: ~/.local/share/bash-completion/completions/ringwright, a folder of zsh's fpath as _ringwright,
        or ~/.config/fish/completions/ringwright.fish.
    force
        Overwrite the output if it exists.
    """
    from ringwright.cli.application import app
    from ringwright.formats.exports.placement import claim_file

    script = app().generate_completion(prog_name=invocation.NAME, shell=shell)
    if output is None:
        print(script)
    else:
        drafts.write(claim_file(output, force=force), f"{script}\n")
        print(f"wrote {output}; it holds in shells that start from now on")
    return 0
