"""A job of any size in one process: the fake process group with fake tensors, where no kernel runs.

Source: ``torch.testing._internal.distributed.fake_pg`` and ``torch._subclasses.fake_tensor``. The dispatch mode is entered on top
of the fake tensors' own, which would otherwise answer without anybody seeing the call.
"""

from __future__ import annotations

from typing import Any

from .operations import FUNCTIONAL, SHAPES, measure


def watch(job: Any) -> None:
    """From now on, enter the recording mode with every FakeTensorMode."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    if getattr(FakeTensorMode, "_ringwright", False):
        return
    recording = _mode(job)
    enter, leave = FakeTensorMode.__enter__, FakeTensorMode.__exit__
    entered: list[Any] = []

    def __enter__(self: Any) -> Any:  # noqa: N807
        result = enter(self)
        is_first = not entered
        entered.append(recording if is_first else None)
        if is_first:
            recording.__enter__()
        return result

    def __exit__(self: Any, *error: Any) -> Any:  # noqa: N807
        if entered and entered.pop() is not None:
            recording.__exit__(*error)
        return leave(self, *error)

    FakeTensorMode.__enter__, FakeTensorMode.__exit__ = __enter__, __exit__
    FakeTensorMode._ringwright = True


def _mode(job: Any) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recording(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(kind.__name__ in ("DTensor", "AsyncCollectiveTensor") for kind in types):
                return NotImplemented  # what it makes of itself comes by again
            space = func.namespace
            if space == "c10d":
                shape = SHAPES.get(func._schema.name.split("::")[1])
                if shape is not None:
                    job.begin(shape, args)
            job.is_told = space == "c10d"  # a real tensor among fake ones reaches a kernel all the same
            try:
                result = func(*args, **(kwargs or {}))
            finally:
                job.is_told = False
            if space == "_c10d_functional":
                _functional(job, func._schema.name.split("::")[1], args, result)
            return result

    return Recording()


def _functional(job: Any, name: str, args: Any, result: Any) -> None:
    known = FUNCTIONAL.get(name)
    if known is None:
        return
    try:
        op, position, reduction, root = known
        group = args[position]
        if isinstance(group, str):
            from torch._C._distributed_c10d import _resolve_process_group

            group = _resolve_process_group(group)
        word = args[reduction] if reduction is not None else ""
        job.write(op, group, measure(args[0]), measure(result), args[root] if root is not None else None, None, word)
    except Exception as error:  # noqa: BLE001 - recording must not disturb
        job.writer.lose("call not understood: %s" % type(error).__name__)
