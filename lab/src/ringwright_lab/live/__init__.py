"""Training on real ranks with the communication of a policy: the simulator's twin on ``torch.distributed``.

``schedule(model, optimizer, policy)`` is the entry point. PyTorch is loaded when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringwright_lab.live.live import Live

__all__ = ["schedule"]


def schedule(model: Any, optimizer: Any, policy: Any, **settings: Any) -> Live:
    """Return what schedules the gradients of ``model`` from now on; see ``ringwright_lab.live.live.schedule``."""
    from ringwright_lab.live.live import schedule as begin

    return begin(model, optimizer, policy, **settings)
