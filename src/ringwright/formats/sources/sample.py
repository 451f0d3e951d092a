"""The job and the benchmark table that ship with the package."""

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


def measured_table() -> Path:
    """Return where the sample of nccl-tests lies: an all-reduce of two nodes of eight H100, 8 B to 16 GiB.

    Its first lines say where it is from. ``ringwright.calibrate`` and ``ringwright.read`` take it.
    """
    return Path(str(files("ringwright") / "samples" / "all_reduce_perf.txt"))
