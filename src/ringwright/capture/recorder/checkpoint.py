"""What ``torch.distributed.checkpoint`` sends while it saves and loads: calls of their own phase, apart from those of training.

Its plans and metadata go as objects over the group (gather, scatter, broadcast of bytes), full state dicts as all-gathers. A
thread that saves is told by itself: an asynchronous save goes on beside the next step. Where the job profiles itself, its profile
names the stretch too, as other annotations are: ``## checkpoint ##``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PHASE = "checkpoint"
_ROOM = "torch.distributed.checkpoint."
_CALLS = {
    _ROOM + "state_dict_saver": ("save", "async_save", "save_state_dict", "_save_state_dict"),
    _ROOM + "state_dict_loader": ("load", "load_state_dict", "_load_state_dict", "_load_state_dict_from_keys"),
    _ROOM + "state_dict": (
        "get_state_dict",
        "get_model_state_dict",
        "get_optimizer_state_dict",
        "set_state_dict",
        "set_model_state_dict",
        "set_optimizer_state_dict",
    ),
}


def after_import() -> dict[str, Callable[[Any], None]]:
    """Return by module what is to be done once it was imported."""
    return dict.fromkeys(_CALLS, _wrap)


def _wrap(module: Any) -> None:
    for name in _CALLS[module.__name__]:
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, _around(original))


def _around(original: Any) -> Any:
    @functools.wraps(original)
    def saving(*args: Any, **kwargs: Any) -> Any:
        context = _context()
        if context is None:
            return original(*args, **kwargs)
        is_first = context.enter_checkpoint()
        try:
            with _named(is_first):
                return original(*args, **kwargs)
        finally:
            context.leave_checkpoint()

    return saving


def _context() -> Any:
    """Return the state of this process, None where nothing is recorded."""
    torch_job = sys.modules.get(__package__ + ".torch_job")
    job = torch_job._state.get("job") if torch_job is not None else None
    return job.context if job is not None else None


@contextmanager
def _named(is_first: bool) -> Iterator[None]:
    """Name the stretch in a profile that is being taken."""
    torch = sys.modules.get("torch")
    enabled = getattr(getattr(torch, "autograd", None), "_profiler_enabled", None)
    if not is_first or enabled is None or not enabled():
        yield
        return
    with torch.profiler.record_function("## %s ##" % PHASE):  # type: ignore[union-attr]
        yield
