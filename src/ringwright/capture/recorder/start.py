"""Arms the recorder: it waits for the job to import ``torch.distributed``, and for its first process group."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from typing import Any

_TARGET = "torch.distributed.distributed_c10d"


def arm() -> None:
    """Watch for PyTorch's process groups; nothing else happens in a process that never makes one."""
    sys.meta_path.insert(0, _Watch())


class _Watch:
    """A finder that only sees the import of one module, and then goes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _TARGET:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader)  # type: ignore[assignment]
        return spec


class _Then:
    """A loader that does what the module's own does, and then wraps what makes process groups."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        try:
            module.init_process_group = _around(module.init_process_group)
        except Exception:  # noqa: BLE001, S110 - a PyTorch without process groups has nothing to record
            pass


def _around(original: Any) -> Any:
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
            job.joined()
        return result

    return init_process_group


def _tell(error: Exception) -> None:
    """Leave a word in the capture: why a process was not recorded."""
    try:
        name = "not-recorded.%d.txt" % os.getpid()
        path = os.path.join(os.environ["RINGWRIGHT_CAPTURE"], name)  # noqa: PTH118 - without imports
        with open(path, "a") as file:  # noqa: PTH123
            file.write("%s: %s\n" % (type(error).__name__, error))
    except OSError:
        pass
