"""What the model is doing: iteration, phase, layer and tokens, from modules' calls, ``backward`` and the optimiser's hooks.

The layer is the module whose forward is running when a call is made; in backward, the last numbered block whose output's gradient
has arrived (a call made for a block's parameters comes while that block, or the one before it, is being differentiated).
"""

from __future__ import annotations

import functools
import re
import time
import weakref
from threading import get_ident
from typing import Any

from . import modules
from .checkpoint import PHASE as CHECKPOINT

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?:\.|$)")
_BLOCK = re.compile(r"(?:^|\.)\d+$")
_INSIDE = re.compile(r"(?:^|\.)\d+\.")


class Context:
    """The state of this process; ``number()`` is what a call refers to.

    The iteration of a call is not in it: the file tells where one ends, and a reader counts.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._numbers: dict[tuple[str, str, int | None], int] = {}
        # By thread: those of a backend or of autograd have Python state for a moment only: no ``threading.local`` lasts in it.
        self._stacks: dict[int, list[Any]] = {}
        self._names: dict[int, tuple[Any, str]] = {}
        self._blocks: set[int] = set()
        self._optimizer: Any = None
        self._began_ns: int | None = None
        self._wants_tokens = False
        self._differentiating = 0
        self._saving: dict[int, int] = {}  # how deep in saving and loading, by thread
        self.iteration = 0
        self.phase = "setup"
        self.tokens: int | None = None
        self.block = ""  # being differentiated
        self.on_step: Any = None  # called with the number of a finished iteration
        self._tensor: Any = ()
        self._is_compiling: Any = bool
        self._transformed: Any = lambda _tensor: False

    def number(self) -> int:
        """Return the number of the context now, after telling the file about it."""
        key = (CHECKPOINT, "", None) if self._is_saving() else (self.phase, self._layer(), self.tokens)
        assigned = self._numbers.get(key)
        if assigned is None:
            assigned = self._numbers[key] = len(self._numbers)
            self._writer.line(["c", assigned, None, *key])
        return assigned

    def _layer(self) -> str:
        stack = self._stacks.get(get_ident())
        if stack:
            return self._name(stack[-1])
        return self.block if self.phase == "backward" else ""

    def _name(self, module: Any) -> str:
        known = self._names.get(id(module))
        return known[1] if known is not None and known[0]() is module else ""

    # Checkpoints --------------------------------------------------------------------------------------------------
    def enter_checkpoint(self) -> bool:
        """This thread saves or loads from now on; return whether it did not before."""
        thread = get_ident()
        depth = self._saving.get(thread, 0)
        self._saving[thread] = depth + 1
        return not depth

    def _is_saving(self) -> bool:
        return bool(self._saving) and get_ident() in self._saving

    def leave_checkpoint(self) -> None:
        """One call of this thread that saves or loads is over."""
        thread = get_ident()
        depth = self._saving.pop(thread, 1)
        if depth > 1:
            self._saving[thread] = depth - 1

    # Forward ------------------------------------------------------------------------------------------------------
    def enter(self, module: Any, args: Any) -> None:
        """Before the forward of any module."""
        try:
            stack = self._stacks.get(get_ident())
            if stack is None:
                stack = self._stacks[get_ident()] = []
            if not stack:
                self._outermost(module)
            if self._wants_tokens and args:
                self._count_tokens(args[0])
            stack.append(module)
        except Exception as error:  # noqa: BLE001 - recording must not disturb
            self._writer.lose("context: %s" % type(error).__name__)

    def leave(self, module: Any, output: Any) -> None:
        """After the forward of any module, also when it raised."""
        try:
            stack = self._stacks.get(get_ident()) or []
            while stack and stack.pop() is not module:
                pass
            if id(module) in self._blocks and self.phase == "forward":
                self._mark(module, output)
            if not stack and self.phase in ("prefill", "decode", "inference"):
                self._finish(self.iteration)
        except Exception as error:  # noqa: BLE001
            self._writer.lose("context: %s" % type(error).__name__)

    def _outermost(self, module: Any) -> None:
        import torch

        known = self._names.get(id(module))
        if known is None or known[0]() is not module:
            self._learn(module)
        if self._began_ns is None:
            self._began_ns = time.monotonic_ns()
        if self._differentiating:
            return  # a forward done again, by checkpointing
        self._wants_tokens = True
        self.tokens = None
        if torch.is_grad_enabled():
            self.phase = "forward"
        else:
            self.phase = "evaluation" if self._optimizer is not None else "inference"

    def _learn(self, root: Any) -> None:
        for path, module in root.named_modules():
            name = _WRAPPERS.sub("", path).rstrip(".")
            self._names[id(module)] = (weakref.ref(module), name)
            # A single operation inside a block is none of its own: to follow its gradient costs more than it tells.
            if _BLOCK.search(name) and (any(True for _ in module.children()) or not _INSIDE.search(name)):
                self._blocks.add(id(module))
            else:
                self._blocks.discard(id(module))

    def _count_tokens(self, value: Any) -> None:
        """Take the first tensor that a module gets: ids of tokens (2-D), hidden states (3-D) or images (4-D)."""
        if not isinstance(value, self._tensor) or not 2 <= value.dim() <= 4:
            return
        self._wants_tokens = False
        sizes = list(value.shape)
        if any(type(size) is not int for size in sizes):
            return  # symbolic, while something is traced: to look at it would make it a constant
        is_sequence = len(sizes) == 3 or (len(sizes) == 2 and not value.is_floating_point())
        self.tokens = sizes[0] * sizes[1] if is_sequence else None
        if self.phase == "inference" and is_sequence:
            self.phase = "decode" if sizes[1] == 1 else "prefill"

    # Backward -----------------------------------------------------------------------------------------------------
    def _mark(self, module: Any, output: Any) -> None:
        first = output[0] if isinstance(output, (tuple, list)) and output else output
        if (
            not isinstance(first, self._tensor)
            or not first.requires_grad
            or first.grad_fn is None
            or self._transformed(first)
        ):
            return
        name = self._name(module)

        def reached(_gradient: Any) -> None:
            self.block = name

        reached.__torch_unserializable__ = True  # type: ignore[attr-defined]  # saving the output says nothing of hooks
        first.register_hook(reached)

    def around_backward(self, original: Any) -> Any:
        """Return ``torch.autograd.backward`` with the phase set while it runs."""

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            self.phase, self.block = "backward", ""
            self._differentiating += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._differentiating -= 1
                self.block = ""

        return backward

    # Optimiser ----------------------------------------------------------------------------------------------------
    def before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Before the step of any optimiser."""
        if self._is_compiling() or self._is_saving():
            return
        self.phase = "optimizer"
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)

    def after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """After the step of any optimiser; the first one that stepped counts iterations."""
        if self._is_compiling() or self._is_saving():
            return  # a state dict is made by a step that changes nothing
        if self._optimizer is not None and self._optimizer() is optimizer:
            self._finish(self.iteration)

    def _finish(self, iteration: int) -> None:
        now_ns = time.monotonic_ns()
        began_ns = self._began_ns if self._began_ns is not None else now_ns
        self._writer.line(["s", iteration, began_ns, now_ns])
        self.iteration = iteration + 1
        self._began_ns = now_ns if self._optimizer is not None else None
        if self.on_step is not None:
            self.on_step(iteration)

    def install(self) -> None:
        """Watch every module and optimiser of this process."""
        import torch
        from torch.optim import optimizer as optimizers

        self._tensor = torch.Tensor
        self._is_compiling = torch.compiler.is_compiling
        self._transformed = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", self._transformed)
        modules.watch(self.enter, self.leave)
        optimizers.register_optimizer_step_pre_hook(self.before_step)
        optimizers.register_optimizer_step_post_hook(self.after_step)
        torch.autograd.backward = self.around_backward(torch.autograd.backward)
