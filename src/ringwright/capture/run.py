"""``ringwright.run``: do it for real: a program on real ranks of this machine, or a command whose communication is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from ringwright.ground.errors import UsageError
from ringwright.model.program import Program

if TYPE_CHECKING:
    from ringwright.capture.rank_run import Executed
    from ringwright.capture.record import Recording
    from ringwright.capture.settings import Options


@overload
def run(
    command: Program,
    out: str | Path | None = None,
    *,
    executor: str | None = None,
    seed: int | None = None,
    timeout_s: float | None = None,
    force: bool = False,
) -> Executed: ...
@overload
def run(
    command: Sequence[str],
    out: str | Path | None = None,
    *,
    options: Options | None = None,
    timeout_s: float | None = None,
    summarised: bool = True,
    force: bool = False,
) -> Recording: ...
def run(
    command: Program | Sequence[str],
    out: str | Path | None = None,
    *,
    options: Options | None = None,
    executor: str | None = None,
    seed: int | None = None,
    timeout_s: float | None = None,
    summarised: bool = True,
    force: bool = False,
) -> Executed | Recording:
    """Run a program on real ranks of this machine, checked; or a command, and record what it communicates.

    A command's output and exit code stay its own. A program is run twice, on processes that are filled from a seed: both
    times what each rank ends with is compared, bit for bit, with the interpreter's result, and the second run is recorded.

    Parameters
    ----------
    command
        A Program; or a program of the operating system and its arguments, which no shell reads:
        ``["torchrun", "--nproc-per-node", "2", "train.py"]``.
    out
        Folder of the recording. Usual: of a command the first of ``ringwright-run-1``, ``-2`` ... that is free here; the Trace
        of a Program is written only where a folder is named.
    options
        Of a command, what to record (``ringwright.capture.settings.Options``); usual: everything that costs little.
    executor
        Of a Program, what carries its messages: ``sockets`` (usual) and ``memory`` need nothing, ``gloo``, ``gloo-batched``
        and ``nccl`` PyTorch, ``openmpi`` and ``mpich`` the extra ``mpi``.
    seed
        Of a Program, what the ranks are filled from; usual: 0.
    timeout_s
        End the job after so many seconds; of a Program, when nothing has moved for so many (usual: 60).
    summarised
        Of a command, read the recording afterwards.
    force
        Record over an older recording.

    Returns
    -------
    Executed
        Of a Program: true where every rank ended with what it must hold. ``results`` of each rank (block number to elements
        as stored, shape (elements,)), what is ``wrong``, ``time_s`` in seconds, and a ``trace`` with every message's times.
    Recording
        Of a command: the ``folder``, how the command ``ended``, and the ``summary`` (schema ``ringwright.summary/1``; None
        where nothing was recorded, and ``notes`` says why).

    Raises
    ------
    UsageError
        The folder is taken, the command does not exist, an option or an executor cannot be had.
    ProgramError
        The Program is not legal: it is not run.
    InfeasibleError
        The Program needs more processes than one machine should start.
    RanksFailedError
        A rank died, or nothing moved any more: the error names who waits for whom.

    Examples
    --------
    >>> import sys, tempfile, ringwright
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = ringwright.run([sys.executable, "-c", "pass"], folder, summarised=False)
    >>> done.ended.code
    0
    >>> all_reduce = ringwright.Collective("all-reduce", range(4), 4096)
    >>> ring = ringwright.algorithm("ring")(all_reduce, ringwright.fabric("switch:4"))
    >>> done = ringwright.run(ring)
    >>> done.correct, float(done.results[0][0][0]) == float(done.results[3][0][0])
    (True, True)
    >>> done.trace
    Trace(executor, ring on real ranks, sockets)
    >>> len(done.trace.df.filter(kind="proxy", op="send"))  # six steps of four ranks
    24
    """
    if isinstance(command, Program):
        if options is not None or not summarised:
            what = "options" if options is not None else "summarised"
            raise UsageError(f"{what} is for the recording of a command, this is a Program", remedy=f"leave {what} out")
        return _executed(command, out, executor, seed, timeout_s, force=force)
    for what, value in {"executor": executor, "seed": seed}.items():
        if value is not None:
            raise UsageError(f"{what} is for a Program, this is a command", remedy=f"leave {what} out")
    return _recorded(command, out, options, timeout_s, summarised=summarised, force=force)


def _executed(
    program: Program,
    out: str | Path | None,
    executor: str | None,
    seed: int | None,
    timeout_s: float | None,
    *,
    force: bool,
) -> Executed:
    from ringwright.capture.rank_run import EXECUTOR, TIMEOUT_S, execute

    return execute(
        program,
        executor or EXECUTOR,
        timeout_s=TIMEOUT_S if timeout_s is None else timeout_s,
        seed=seed or 0,
        out=None if out is None else Path(out),
        force=force,
    )


def _recorded(
    command: Sequence[str],
    out: str | Path | None,
    options: Options | None,
    timeout_s: float | None,
    *,
    summarised: bool,
    force: bool,
) -> Recording:
    from ringwright.capture.folder import free_folder
    from ringwright.capture.record import record
    from ringwright.capture.settings import Options

    folder = free_folder(Path.cwd()) if out is None else Path(out)
    return record(
        command, folder, options or Options(), timeout_s=timeout_s, summarised=summarised, force=force, tell=_silent
    )


def _silent(_words: str) -> None:
    """Keep words to the user of a terminal from one who has the object."""
