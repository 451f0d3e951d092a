"""The job that ships with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def sample() -> Path:
    """Return where the sample lies: the NCCL debug log of a small training job, as its ranks wrote it.

    Returns
    -------
    Path
        A file of the package that ``ringwright.read`` takes, and every verb of the command line by ``--sample``.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.sample().name
    'job.log.gz'
    """
    return Path(str(files("ringwright") / "samples" / "job.log.gz"))
