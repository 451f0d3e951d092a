"""Arms the recorder: it waits for the job to import ``torch.distributed``, and for its first process group."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

_GROUPS = "torch.distributed.distributed_c10d"
_COMPILER = "torch._dynamo.trace_rules"
# What the compiler is to pass over. Not ``modules``: what stands around a module's call has to be seen through.
_OPAQUE = (
    *(
        "checkpoint",
        "children",
        "context",
        "fake",
        "exit_status",
        "groups",
        "operations",
        "sources",
        "start",
        "torch_job",
    ),
    "writer",
)


def arm() -> None:
    """Watch for PyTorch's process groups; nothing else happens in a process that never makes one."""
    from . import checkpoint, children

    after: dict[str, Callable[[Any], None]] = {_GROUPS: _wrap_groups, _COMPILER: _hide_from_compiler}
    after.update(checkpoint.after_import())
    parents = {"subprocess": children.wrap_subprocess, "multiprocessing.popen_fork": children.wrap_forks}
    for name, wrap in parents.items():
        if name in sys.modules:
            wrap(sys.modules[name])
        else:
            after[name] = wrap
    sys.meta_path.insert(0, _Watch(after))


class _Watch:
    """A finder that only sees the import of a few modules, each once, and then goes."""

    def __init__(self, after: dict[str, Callable[[Any], None]]) -> None:
        self._after = after

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._after:
            return None
        for finder in list(sys.meta_path):
            look = getattr(finder, "find_spec", None) if finder is not self else None
            spec = look(name, path, target) if look is not None else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Then(spec.loader, self, self._after[name])
                return spec
        return None

    def forget(self, name: str) -> None:
        """A module was imported."""
        self._after.pop(name, None)
        if not self._after and self in sys.meta_path:
            sys.meta_path.remove(self)


class _Then:
    """A loader that does what the module's own does, and then something more."""

    def __init__(self, loader: Any, watch: _Watch, after: Callable[[Any], None]) -> None:
        self._loader, self._watch, self._after = loader, watch, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        try:
            self._watch.forget(module.__name__)
            module.__loader__ = module.__spec__.loader = self._loader
            self._after(module)
        except Exception:  # noqa: BLE001, S110 - a PyTorch without process groups has nothing to record
            pass


def _wrap_groups(module: Any) -> None:
    module.init_process_group = _around_begin(module.init_process_group)
    module.destroy_process_group = _around_end(module.destroy_process_group)


def _hide_from_compiler(module: Any) -> None:
    """What runs between two compiled pieces is looked at by the compiler too: it is not to compile the recorder."""
    for name in _OPAQUE:
        module.add("%s.%s" % (__package__, name))


def _around_begin(original: Any) -> Any:
    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        job = None
        folder = os.environ.get("RINGWRIGHT_CAPTURE")
        try:
            if folder:
                from . import torch_job

                job = torch_job.begin(folder)
        except Exception as error:  # noqa: BLE001 - the job goes on unrecorded, and a file says why
            _tell(error)
        result = original(*args, **kwargs)
        if job is not None:
            try:
                job.joined()
            except Exception as error:  # noqa: BLE001
                job.writer.lose("not begun: %s" % type(error).__name__)
        return result

    return init_process_group


def _around_end(original: Any) -> Any:
    @functools.wraps(original)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        name = None
        try:
            group = args[0] if args else kwargs.get("group")
            name = group.group_name if group is not None else None
            from torch.distributed import group as groups

            if group is groups.WORLD:
                name = None
        except Exception:  # noqa: BLE001, S110 - a group that has no name is none of ours
            pass
        result = original(*args, **kwargs)
        torch_job = sys.modules.get(__package__ + ".torch_job")
        if torch_job is not None:
            torch_job.ended(name)
        return result

    return destroy_process_group


def _tell(error: Exception) -> None:
    """Leave a word in the capture: why a process was not recorded."""
    try:
        name = "not-recorded.%d.txt" % os.getpid()
        path = os.path.join(os.environ["RINGWRIGHT_CAPTURE"], name)  # noqa: PTH118 - without imports
        with open(path, "a") as file:  # noqa: PTH123
            file.write("%s: %s\n" % (type(error).__name__, error))
    except OSError:
        pass
