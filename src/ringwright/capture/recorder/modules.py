"""Around every module's call.

Global hooks would do in eager code, but PyTorch's compiler traces them, warns of them, and refuses whole graphs for what they do.
It recognises the call that it found when it was loaded, and takes the module's forward instead; where it was loaded before, it is
told of this one. Where it traces the function below (``module.compile()``), nothing of the recorder is left.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


def watch(enter: Callable[[Any, Any], None], leave: Callable[[Any, Any], None]) -> None:
    """Call ``enter(module, args)`` before and ``leave(module, output)`` after the call of any module in eager code."""
    import torch

    original, is_compiling = torch.nn.Module._call_impl, torch.compiler.is_compiling

    @functools.wraps(original)
    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        enter(self, args)
        try:
            output = original(self, *args, **kwargs)
        except BaseException:
            leave(self, None)
            raise
        leave(self, output)
        return output

    torch.nn.Module._call_impl = _call_impl
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if getattr(module, "unpatched_nn_module_call_impl", None) is original:
            module.unpatched_nn_module_call_impl = _call_impl  # type: ignore[union-attr]
