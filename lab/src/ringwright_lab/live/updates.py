"""The optimiser's step taken a few parameters at a time, with the settings of the moment at which step() was called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringwright.ground.errors import UsageError

SEPARABLE = (
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
)


class Updates:
    """An optimiser whose update of a parameter needs nothing of any other parameter."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._group: dict[int, int] = {}

    def settings(self) -> list[dict[str, Any]]:
        """Return the settings of each group as they are now: schedulers of the learning rate change them afterwards."""
        groups = self._optimizer.param_groups
        self._group = {id(each): at for at, group in enumerate(groups) for each in group["params"]}
        return [
            {
                name: value.clone() if hasattr(value, "clone") else value
                for name, value in group.items()
                if name != "params"
            }
            for group in groups
        ]

    def apply(self, parameters: Sequence[Any], settings: Sequence[dict[str, Any]]) -> None:
        """Update ``parameters``, whose gradients are in place, sharing the optimiser's state."""
        by_group: dict[int, list[Any]] = {}
        for parameter in parameters:
            if id(parameter) in self._group:
                by_group.setdefault(self._group[id(parameter)], []).append(parameter)
        if not by_group:
            return
        kind = type(self._optimizer)
        part = object.__new__(kind)
        part.__dict__.update(self._optimizer.__dict__)
        part.__dict__.pop("step", None)
        part.param_groups = [{**settings[at], "params": members} for at, members in by_group.items()]
        kind.step(part)


def refuse(optimizer: Any, known: Sequence[Any]) -> None:
    """Raise UsageError, with the reason, for an optimiser that cannot update layer by layer."""
    kind = type(optimizer)
    home = kind.__module__.startswith("torch.optim")
    if not (home and kind.__name__ in SEPARABLE) and not getattr(kind, "separable", False):
        raise UsageError(
            f"{kind.__name__} may need all gradients at once; updating layer by layer would change its result",
            remedy="a policy whose boundary is the barrier, or set separable = True on a class whose updates are independent",
        )
    strangers = {id(each) for group in optimizer.param_groups for each in group["params"]} - {
        id(each) for each in known
    }
    if strangers:
        raise UsageError(
            f"{len(strangers)} parameters of the optimiser are none of the model's; no layer's forward would update them",
            remedy="an optimiser of their own",
        )


def refuse_hooks(optimizer: Any) -> None:
    """Raise UsageError where hooks around step() would run once a layer."""
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise UsageError(
            "the optimiser has hooks around step(); layer by layer they would run many times, on unfinished updates",
            remedy="remove them, or a policy whose boundary is the barrier",
        )
