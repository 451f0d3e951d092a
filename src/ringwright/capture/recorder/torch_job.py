"""The PyTorch hook: every c10d operation of the process, whoever issues it, on its way through the dispatcher.

DDP's reducer, FSDP, DTensor, functional collectives and plain calls all end in operations of the library ``c10d``; the recorder
stands before the kernels of all devices and calls them from there. With the fake backend and fake tensors kernels
never run; there a dispatch mode sees the same operations.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import threading
import time
import weakref
from typing import Any

from . import exit_status
from .context import Context
from .groups import GroupNumbers
from .operations import SHAPES, CallSignature, measure
from .writer import Writer

_POINTWISE = ("send", "recv")
_MOST_RESULTS = 4096
_PATIENCE_S = 1.0
_state: dict[str, Any] = {}


def begin(folder: str) -> TorchRecorder | None:
    """Return the recorder of this process, made and hooked in at the first call."""
    if _state.get("pid") == os.getpid():
        return _state["job"]  # type: ignore[no-any-return]
    if _state:
        raise RuntimeError("forked from process %d, which is recorded" % _state["pid"])
    import torch

    _state.update(pid=os.getpid(), job=None)
    job = _state["job"] = TorchRecorder(folder, torch.__version__)
    job.install()
    return job


def ended(name: str | None) -> None:
    """A process group of that name, or all, was destroyed."""
    job = _state.get("job")
    if job is not None and job.pid == os.getpid():
        job.groups.forget(name)


class TorchRecorder:
    """What one process records."""

    def __init__(self, folder: str, release: str) -> None:
        self.folder = folder
        self.options = json.loads(os.environ.get("RINGWRIGHT_RECORD") or "{}")
        self.writer = Writer(folder, "torch-hook", "torch %s" % release)
        self.groups = GroupNumbers(self.writer)
        self.context = Context(self.writer)
        self.calls = itertools.count()
        self.pid = os.getpid()
        self._is_joined = False
        self.is_told = False  # the call under way has been noted before its kernel
        # Works without a future end when somebody has waited for them. They are not kept alive, and their buffers with them,
        # beyond the moment when the caller has them.
        self._open: dict[int, tuple[int, Any, Any]] = {}
        self._latest: dict[int, Any] = {}  # by thread
        self._results: dict[int, int] = {}  # address of a result to its call
        self._functional: Any = None
        self._group_type: Any = None
        self._work_type: Any = None
        self._waiting: set[int] = set()  # calls whose end a thread of the backend will tell

    # Once ---------------------------------------------------------------------------------------------------------
    def install(self) -> None:
        """Stand before the kernels, and hook into modules."""
        import torch
        from torch._C._distributed_c10d import ProcessGroup, Work

        self._group_type, self._work_type = ProcessGroup, Work
        self._step_in(torch)
        if self.options.get("layers", True):
            self.context.install()
        self._watch_waits()
        atexit.register(self._leave)
        exit_status.watch(self)

    def joined(self) -> None:
        """Say who this process is, once the group knows."""
        from torch import distributed

        if distributed.is_initialized():
            self.writer.line({"rank": distributed.get_rank(), "world": distributed.get_world_size()})
            if "fake" in str(distributed.get_backend()):
                from . import fake

                fake.watch(self)
            if not self._is_joined:
                self._is_joined = True
                from . import sources

                sources.start(self)

    def _step_in(self, torch: Any) -> None:
        """Register in front of every device's kernel: BackendSelect is the last key before them, and always looked at."""
        self._library = torch.library.Library("c10d", "IMPL")  # kept: with it the kernels would go
        for name, shape in SHAPES.items():
            operation = getattr(getattr(torch.ops.c10d, name, None), "default", None)
            if operation is not None:
                self._library.impl(name, self._kernel(torch, operation, shape), "BackendSelect", with_keyset=True)

    def _kernel(self, torch: Any, operation: Any, shape: CallSignature) -> Any:
        meta, host = torch._C.DispatchKey.Meta, torch._C.DispatchKey.CPU
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        # Redispatching lets go of the interpreter's lock, where a kernel called directly would keep it: gloo's threads need that
        # lock while they hold one of their own.
        go_on = operation.redispatch
        names = [argument.name for argument in operation._schema.arguments]
        position = names.index("async_op") if "async_op" in names else None
        usual = operation._schema.arguments[position].default_value if position is not None else None

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            if keys.has(meta):
                return go_on(keys & below, *args, **kwargs)
            is_async = args[position] if position is not None and position < len(args) else usual
            begun = None if self.is_told else self.begin(shape, args, is_host=keys.has(host), is_async=is_async)
            if begun is None:
                return go_on(keys & below, *args, **kwargs)
            try:
                result = go_on(keys & below, *args, **kwargs)
            except Exception as error:
                self.raised(begun[0], error)
                raise
            if begun[1]:
                outside = args[shape.outside] if shape.outside is not None else None
                self._follow(begun[0], result, outside, is_waited_for=is_async is False)
            return result

        return kernel

    def _watch_waits(self) -> None:
        """Calls waited for at once, and works of gloo without a future (send, receive, reduce-scatter), end with a wait."""
        original, opened, end = self._work_type.wait, self._open, self.end

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            call = opened.pop(id(work), None) if opened else None
            if call is None or call[1]() is not work:
                return original(work, *args, **kwargs)
            self._latest.pop(threading.get_ident(), None)
            try:
                result = original(work, *args, **kwargs)
            except Exception as error:  # not what ends a process from outside: an interrupt says nothing of the call
                self.raised(call[0], error)
                raise
            if call[2] is None or self._results.pop(call[2], None) is not None:
                end(call[0])
            return result

        self._work_type.wait = wait

    def _leave(self) -> None:
        """At the end of the process. A backend's thread that came for the interpreter's lock after it would take the job down."""
        if os.getpid() == self.pid:
            until = time.monotonic() + _PATIENCE_S
            while self._waiting and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(0.001)  # the last of them lets go
            exit_status.leaving()
            self.writer.line(["x", "exit", time.monotonic_ns(), None])

    # Each call ----------------------------------------------------------------------------------------------------
    def begin(
        self, shape: CallSignature, args: Any, is_host: bool = True, is_async: bool | None = None
    ) -> tuple[int, bool] | None:
        """Note a call that begins; return its number and whether its end can be seen, None where it is not recorded."""
        if os.getpid() != self.pid:
            return None
        try:
            group = args[shape.group]
            if not isinstance(group, self._group_type):
                group = self._group_type.unbox(group)
            inside = measure(args[shape.inside]) if shape.inside is not None else None
            outside = inside
            if shape.outside != shape.inside:
                outside = measure(args[shape.outside]) if shape.outside is not None else None
            root = args[shape.root] if shape.root is not None else None
            peer = args[shape.peer] if shape.peer is not None else None
            return self.write(shape.op, group, inside, outside, root, peer, is_host=is_host, is_async=is_async)
        except Exception as error:  # noqa: BLE001 - recording must not disturb
            self.writer.lose("call not understood: %s" % type(error).__name__)
            return None

    def write(
        self,
        op: str,
        group: Any,
        inside: Any,
        outside: Any,
        root: int | None,
        peer: int | None,
        reduction: str = "",
        is_host: bool = True,
        is_async: bool | None = None,
    ) -> tuple[int, bool]:
        """Write a call's first line; ``inside`` and ``outside`` are (elements, bytes, type) or None. Returns as ``begin``."""
        known = self.groups.known(group, is_host)
        context = self.context.number()
        number = next(self.calls)
        turn = "null" if op in _POINTWISE else next(known.turns)
        count, sent, kind = inside or ((outside[0], None, outside[2]) if outside else (0, 0, ""))
        received = outside[1] if outside else (0 if op == "barrier" else None)
        values = (
            number,
            time.monotonic_ns(),
            known.number,
            op,
            kind,
            count,
            _json(sent),
            _json(received),
            _json(root),
            _json(peer),
            reduction,
            context,
            "null" if is_async is None else int(is_async),
            threading.get_native_id(),
            turn,
        )
        self.writer.text('["b",%d,%d,%d,"%s","%s",%d,%s,%s,%s,%s,"%s",%d,%s,%d,%s]' % values)
        return number, known.is_measured

    def end(self, number: int) -> None:
        """Note that a call has completed."""
        self.writer.text('["e",%d,%d]' % (number, time.monotonic_ns()))

    def _done(self, number: int, future: Any) -> None:
        """Called by the backend's thread when a call is over."""
        try:
            future.value()
        except BaseException as error:  # noqa: BLE001 - whatever a call fails with
            self.raised(number, error)
        else:
            self.end(number)
        self._waiting.discard(number)

    def raised(self, number: int, error: BaseException) -> None:
        """Note that a call failed at once."""
        try:
            words = "%s: %s" % (type(error).__name__, str(error)[:300])
        except Exception:  # noqa: BLE001 - an error that cannot say what it is
            words = type(error).__name__
        self.writer.line(["r", number, time.monotonic_ns(), words])

    def _follow(self, number: int, result: Any, outside: Any, *, is_waited_for: bool) -> None:
        """See to it that the end of a call is noted, where the host can see it; ``outside``: where its result comes to be.

        Whoever waits for a call at once sees its end as early as a thread of the backend, and need not take turns with it for the
        interpreter's lock, which is what most of a recorded call costs.
        """
        try:
            boxed = (result[-1] if result else None) if isinstance(result, (tuple, list)) else result
            if boxed is None:
                self.end(number)  # it returns when it is over
                return
            work = self._work_type.unbox(boxed)
            if is_waited_for:
                self._hold(number, work, None)
                return
            try:
                future = work.get_future()
            except RuntimeError:
                self._hold(number, work, outside)
                return
            self._waiting.add(number)
            future.add_done_callback(functools.partial(self._done, number))
        except Exception as error:  # noqa: BLE001 - recording must not disturb
            self.writer.lose("end not seen: %s" % error)

    def _hold(self, number: int, work: Any, outside: Any) -> None:
        """Know a work again when it is waited for. The object must live until the caller has it: then it is the caller's too."""
        key, address = id(work), None
        result = outside[0] if isinstance(outside, (list, tuple)) and outside else outside
        if hasattr(result, "data_ptr"):
            # A functional collective is waited for by its tensor, the first of several, inside the library.
            address = result.data_ptr()
            if len(self._results) >= _MOST_RESULTS:
                self._results.clear()
            self._results[address] = number
            if self._functional is None:
                self._watch_tensors()
        self._open[key] = (number, weakref.ref(work, lambda _gone: self._open.pop(key, None)), address)
        self._latest[threading.get_ident()] = work

    def _watch_tensors(self) -> None:
        import torch

        operation = torch.ops._c10d_functional.wait_tensor.default
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        meta, results = torch._C.DispatchKey.Meta, self._results

        def kernel(keys: Any, tensor: Any) -> Any:
            waited = operation.redispatch(keys & below, tensor)
            if results and not keys.has(meta) and os.getpid() == self.pid:
                number = results.pop(tensor.data_ptr(), None)
                if number is not None:
                    self.end(number)
            return waited

        self._functional = torch.library.Library("_c10d_functional", "IMPL")
        self._functional.impl("wait_tensor", kernel, "BackendSelect", with_keyset=True)


def _json(value: Any) -> Any:
    return "null" if value is None else value
