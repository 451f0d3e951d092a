"""Found by every Python process of a recorded job, first on PYTHONPATH: starts the recorder, then what it stands before."""

import os
import sys


def _start_recorder(here: str) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(here)  # noqa: PTH120 - os is loaded already, pathlib is not
    front = os.path.join(folder, "__init__.py")  # noqa: PTH118
    spec = spec_from_file_location("ringwright_recorder", front, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        return
    package = module_from_spec(spec)
    sys.modules["ringwright_recorder"] = package
    spec.loader.exec_module(package)
    from ringwright_recorder import start  # type: ignore[import-not-found]

    start.arm()


def _go_on(here: str) -> None:
    """Run the sitecustomize that this one hides, if there is one: systems and tools put theirs there too."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    rest = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.realpath(here)]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
if os.environ.get("RINGWRIGHT_CAPTURE"):
    try:
        _start_recorder(_here)
    except Exception:  # noqa: BLE001, S110 - a recorder that cannot start must not keep the job from starting
        pass
_go_on(_here)
