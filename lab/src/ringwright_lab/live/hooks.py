"""Where a schedule takes hold of a model and its optimiser: their calls and hooks put in place, and all taken away again."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Hooks:
    """What was put in place, so that ``remove()`` leaves model and optimiser as they were."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._handles: list[Any] = []
        self._waiting: list[Any] = []
        self._replaced: list[tuple[Any, str, Any]] = []

    def steps(self, step: Callable[[Any], Any]) -> Callable[..., Any]:
        """Have ``optimizer.step`` call ``step`` with the closure or None; return what it was."""
        before: Callable[..., Any] = self._optimizer.step

        def stepped(_self: Any, closure: Callable[[], Any] | None = None) -> Any:
            return step(closure)

        stepped._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        self._replace(self._optimizer, "step", types.MethodType(stepped, self._optimizer))
        return before

    def zeroes(self, zero: Callable[[Callable[..., Any], bool], None]) -> None:
        """Have ``zero_grad`` of both call ``zero`` with what it was and its argument."""
        for home in (self._optimizer, self._model):
            before = home.zero_grad
            self._replace(home, "zero_grad", lambda set_to_none=True, before=before: zero(before, set_to_none))

    def gradients(self, parameters: Mapping[str, Any], came: Callable[[str, Any], None]) -> None:
        """Call ``came`` with name and parameter when autograd has finished a gradient."""
        for name, parameter in parameters.items():
            self._handles.append(parameter.register_post_accumulate_grad_hook(lambda each, name=name: came(name, each)))

    def forward(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        """Call these around the model's forward pass."""
        hook = self._model.register_forward_pre_hook
        self._handles.append(hook(lambda _m, _a: begins(), prepend=True))
        self._handles.append(self._model.register_forward_hook(lambda _m, _a, _o: ends(), always_call=True))

    def states(self, flush: Callable[[], None]) -> None:
        """Call ``flush`` before anybody reads or writes the state of either."""
        for module in self._model.modules():
            self._handles.append(module.register_state_dict_pre_hook(lambda *_: flush()))
            self._handles.append(module.register_load_state_dict_pre_hook(lambda *_: flush()))
        self._handles.append(self._optimizer.register_state_dict_pre_hook(lambda _o: flush()))
        self._handles.append(self._optimizer.register_load_state_dict_pre_hook(lambda _o, _s: flush()))

    def waits(self, needs: Mapping[str, Iterable[str]], before: Callable[[str, tuple[str, ...]], None]) -> None:
        """Call ``before`` with layer and parameters before each module that needs some, instead of the modules so far."""
        for handle in self._waiting:
            handle.remove()
        modules = dict(self._model.named_modules())
        self._waiting = [
            modules[name].register_forward_pre_hook(
                lambda _m, _a, name=name, names=tuple(names): before(name or "model", names)
            )
            for name, names in needs.items()
        ]

    def _replace(self, home: Any, name: str, new: Any) -> None:
        self._replaced.append((home, name, home.__dict__.get(name)))
        home.__dict__[name] = new

    def remove(self) -> None:
        """Take all away."""
        for handle in [*self._handles, *self._waiting]:
            handle.remove()
        for home, name, before in self._replaced:
            home.__dict__.pop(name, None)
            if before is not None:
                home.__dict__[name] = before
