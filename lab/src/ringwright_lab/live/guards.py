"""What would need all gradients between backward() and step(), caught while some of them are still on their way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from weakref import WeakSet

import torch

CLIPS = ("clip_grad_norm_", "clip_grad_value_")
SCALER = ("unscale_", "step")


class Guarded(Protocol):
    """A schedule that may have gradients on their way."""

    optimizer: Any

    def refuse_edit(self, parameters: Iterable[Any], what: str) -> None:
        """Raise UsageError if any of these gradients is not final."""


_active: WeakSet[Any] = WeakSet()
_originals: dict[tuple[Any, str], Any] = {}


def guard(live: Guarded) -> None:
    """Look after a schedule until ``release``."""
    if not _originals:
        for name in CLIPS:
            for home in (torch.nn.utils, torch.nn.utils.clip_grad):
                _replace(home, name, _clip)
        for name in SCALER:
            _replace(torch.amp.GradScaler, name, _scaler)
    _active.add(live)


def release(live: Guarded) -> None:
    """Look after it no longer; what was replaced comes back with the last one."""
    _active.discard(live)
    if not _active:
        for (home, name), original in _originals.items():
            setattr(home, name, original)
        _originals.clear()


def original(name: str) -> Callable[..., Any]:
    """Return the function of ``torch.nn.utils`` itself."""
    function: Callable[..., Any] = _originals.get((torch.nn.utils, name)) or getattr(torch.nn.utils, name)
    return function


def _replace(home: Any, name: str, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    _originals[home, name] = getattr(home, name)
    setattr(home, name, wrap(name, _originals[home, name]))


def _clip(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def clipped(parameters: Any, *args: Any, **settings: Any) -> Any:
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        for live in list(_active):
            live.refuse_edit(listed, f"torch.nn.utils.{name}")
        return function(listed, *args, **settings)

    return clipped


def _scaler(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def scaled(self: Any, optimizer: Any, *args: Any, **settings: Any) -> Any:
        for live in list(_active):
            if live.optimizer is optimizer and self.is_enabled():
                members = [each for group in optimizer.param_groups for each in group["params"]]
                live.refuse_edit(members, f"GradScaler.{name}")
        return function(self, optimizer, *args, **settings)

    return scaled
