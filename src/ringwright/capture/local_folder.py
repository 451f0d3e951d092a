"""A recording on the node's own disk, brought to its folder when the job has ended.

``DIR/ringwright-<job>.<random>`` belongs to one launcher. ``.run.collect`` in it names the folder that its files go to; what a
launcher that was killed left there, ``docs/deploy/slurm-epilog.sh`` brings there by the same rules.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ringwright.capture.folder import job_name, unused
from ringwright.ground import drafts
from ringwright.ground.errors import UsageError

GOAL = ".run.collect"


def local_folder(parent: Path, folder: Path, name: str, environment: Mapping[str, str]) -> Path:
    """Make a launcher's folder below ``parent``; UsageError where it cannot be made. The scheduler's job is in its name."""
    job = re.sub(r"[^\w.-]", "_", job_name("", environment) or name or "job", flags=re.ASCII)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f"ringwright-{job}.", dir=parent.absolute()))
        drafts.write(made / GOAL, os.fsencode(folder.absolute()))
    except OSError as error:
        raise UsageError(
            f"{parent} cannot be written: {error.strerror}", remedy="name another folder of this node with --local"
        ) from error
    return made


def collect(made: Path, folder: Path) -> list[str]:
    """Bring a launcher's files to the recording's folder, and remove them here; return what could not be brought, and why."""
    notes = []
    for file in sorted(made.iterdir()):
        if file.name.startswith("."):
            continue
        try:
            with drafts.draft(unused(folder / file.name), mode=drafts.PRIVATE) as draft:
                shutil.copyfile(file, draft)
            file.unlink()
        except (OSError, UsageError) as error:
            notes.append(f"{file} stays there: {error.what if isinstance(error, UsageError) else error.strerror}")
    if not notes:
        shutil.rmtree(made, ignore_errors=True)
    return notes
