"""Which module needs which parameter first: watched in a forward pass, because a module may use another one's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

UNUSED = "(unused)"


class _Watch(TorchFunctionMode):
    """Tells of every parameter that a function of PyTorch is called with."""

    def __init__(self, uses: Uses) -> None:
        super().__init__()
        self._uses = uses

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for each in tree_leaves((args, kwargs or {})):
            if isinstance(each, torch.nn.Parameter):
                self._uses.used(each)
        return func(*args, **(kwargs or {}))


class Uses:
    """Watches forward passes of a model until it is closed; ``waits`` says which parameters each module needs."""

    def __init__(self, model: torch.nn.Module, names: Mapping[int, str]) -> None:
        self._names = names
        self._stack: list[str] = []
        self._watch: _Watch | None = None
        self.waits: dict[str, dict[str, None]] = {}
        self.entered: dict[str, None] = {}  # modules in the order of their first call
        self._handles = []
        for name, module in model.named_modules():
            for _, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                if id(parameter) in names:
                    self.waits.setdefault(name, {})[names[id(parameter)]] = None
            self._handles += [
                module.register_forward_pre_hook(lambda _m, _a, name=name: self._enter(name), prepend=True),
                module.register_forward_hook(lambda _m, _a, _o, name=name: self._leave(name), always_call=True),
            ]

    def _enter(self, name: str) -> None:
        if not self._stack and torch.is_grad_enabled():
            self._watch = _Watch(self)
            self._watch.__enter__()
        self._stack.append(name)
        self.entered.setdefault(name)

    def _leave(self, name: str) -> None:
        while self._stack and self._stack.pop() != name:
            pass
        if not self._stack and self._watch is not None:
            watch, self._watch = self._watch, None
            watch.__exit__(None, None, None)

    def used(self, parameter: Any) -> None:
        """Take down that the module being run uses a parameter."""
        name = self._names.get(id(parameter))
        if name is not None and self._stack:
            self.waits.setdefault(self._stack[-1], {})[name] = None

    def close(self) -> None:
        """Watch no longer."""
        for handle in self._handles:
            handle.remove()

    def layers(self) -> dict[str, list[str]]:
        """Return module -> parameters that it is the first to need, in the order of forward; never used ones under UNUSED."""
        layers: dict[str, list[str]] = {}
        taken: set[str] = set()
        for module in self.entered:
            mine = [name for name in self.waits.get(module, {}) if name not in taken]
            taken |= set(mine)
            if mine:
                layers[module or "model"] = mine
        rest = [name for name in self._names.values() if name not in taken]
        if rest:
            layers[UNUSED] = list(dict.fromkeys(rest))
        return layers
