"""``schedule(model, optimizer, "bytescheduler")``: a scheduler by its name on real ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import MissingExtraError, UsageError
from ringwright.model.registry import scheduler

if TYPE_CHECKING:
    from ringwright.model.workload import Policy, Workload
    from ringwright_lab.live.live import Live


def schedule(model: Any, optimizer: Any, policy: str | Policy | Callable[..., Workload], **options: Any) -> Live:
    """Send the gradients of a PyTorch model in the order of a policy; call it after ``init_process_group``.

    Parameters
    ----------
    model, optimizer
        A ``torch.nn.Module`` and its optimizer.
    policy
        A name as ``--policy`` takes it (``p3``, ``bytescheduler:partition_mb=1``, ``p3+gradientflow``), a scheduler, or a Policy.
    options
        Those of ``ringwright_lab.live.on_ranks``: ``aggregate="switchml:codec=int8"`` sums through a switch that adds.

    Returns
    -------
    Live
        What holds the hooks; ``close`` takes them out.

    Raises
    ------
    MissingExtraError
        PyTorch is not installed.
    UsageError
        What cannot be done, with the reason.

    Examples
    --------
    In a training script, one line before the loop::

        live = ringwright.schedule(model, optimizer, "bytescheduler")
    """
    if find_spec("torch") is None:
        raise MissingExtraError("live schedules need PyTorch", extra="torch")
    from ringwright_lab.live import schedule as start

    chosen = scheduler(policy)[1] if isinstance(policy, str) else policy
    return start(model, optimizer, chosen, **options)


def named(spelling: str) -> tuple[str, dict[str, Any]]:
    """Return a scheduler as ``module:function`` with its knobs, which other processes can load; UsageError for several."""
    chosen = scheduler(spelling)[1]
    if not isinstance(chosen, partial):
        raise UsageError(f"'{spelling}' is several schedulers in one", remedy="one of them")
    return f"{chosen.func.__module__}:{chosen.func.__name__}", dict(chosen.keywords)
