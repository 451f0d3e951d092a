"""What the tool says about a missing library can be typed as it stands, in a checkout and far from every index."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from ringwright.ground import extras
from ringwright.ground.errors import MissingExtraError

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
DECLARED = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}


def hints() -> set[tuple[str, tuple[str, ...]]]:
    """Every MissingExtraError of the package: its extra, and which of its libraries it names."""
    named = set()
    for path in [*(REPOSITORY / "src").rglob("*.py"), *(REPOSITORY / "lab" / "src").rglob("*.py")]:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "MissingExtraError" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MissingExtraError":
                given = {
                    each.arg: ast.literal_eval(each.value) for each in node.keywords if each.arg in ("extra", "only")
                }
                if path.name == "laboratory.py":
                    continue  # another distribution, no extra
                assert given, f"{path.name}:{node.lineno} names no extra"
                named.add((given.get("extra", ""), tuple(given.get("only", ()))))
    return named


@pytest.mark.parametrize(("extra", "only"), sorted(hints()))
def test_every_hint_names_what_the_project_declares(extra: str, only: tuple[str, ...]) -> None:
    named = extras.requirements(extra, *only)
    assert named
    assert set(named) <= set(DECLARED[extra])
    assert only or named == DECLARED[extra]
    error = MissingExtraError("lacking", extra=extra, only=only)
    assert shlex.split(error.remedy)[-len(named) :] == named


@pytest.mark.slow
def test_the_hints_run_as_they_stand() -> None:
    """Typed into a shell in this folder, all as one, as they differ in the libraries alone; without an index, changing nothing."""
    installed = {each.metadata["Name"].lower().replace("_", "-") for each in metadata.distributions()}
    lines = set()
    wanted: list[str] = []
    for extra, only in sorted(hints()):
        named = extras.requirements(extra, *only)
        lines.add(extras.install(extra, *only).removesuffix(shlex.join(named)))
        if {re.split(r"[^\w.-]", each)[0].lower() for each in named} <= installed:
            wanted += named
    (start,) = lines
    assert wanted
    command = f"{start}{shlex.join(wanted)} --dry-run --no-index --quiet"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, command + done.stderr


def test_no_page_or_message_asks_an_index_for_ringwright() -> None:
    """Nobody can say that an index holds it; a folder, a wheel's file and the libraries' own names always work."""
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "src").rglob("*.py")]
    asked = re.compile(r"pip install (?:-\S+ )*['\"]?ringwright(?![-_.\w/])")
    assert not [str(page.relative_to(REPOSITORY)) for page in pages if asked.search(page.read_text())]


def test_a_command_names_the_python_that_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As short as a shell in this folder takes it, and quoted."""
    folder = tmp_path / "a folder" / "bin"
    folder.mkdir(parents=True)
    python = folder / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert extras.install("tune").startswith("'a folder/bin/python' -m pip install 'bayesian")
    monkeypatch.setenv("PATH", str(folder))
    assert extras.install("tune").startswith("python -m pip install ")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert extras.install("tune").startswith(f"'{python}' -m pip")


def test_without_pip_another_installer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(extras.shutil, "which", lambda name: f"/bin/{name}")
    assert extras.install("tune").startswith("uv pip install --python ")


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ({"url": Path("/nowhere/ringwright.whl").as_uri(), "archive_info": {}}, "from its source, or a wheel"),
        ({"url": Path("/nowhere").as_uri(), "dir_info": {}}, "from its source, or a wheel"),
        ({"url": REPOSITORY.as_uri(), "dir_info": {}}, f"--force-reinstall --no-deps {REPOSITORY}"),
        ({"url": REPOSITORY.as_uri(), "dir_info": {"editable": True}}, f"--editable {REPOSITORY}"),
        (None, "from its source, or a wheel"),
    ],
)
def test_building_again_goes_to_where_it_came_from(
    origin: dict[str, object] | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, _name: str) -> str | None:
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(extras, "distribution", lambda _: Installed())
    assert said in extras.rebuild()


def test_a_package_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", absent)
    monkeypatch.setattr(extras, "distribution", absent)
    assert extras.install("mpi").endswith("pip install 'ringwright[mpi]'")
    assert extras.install("", "loky").endswith("pip install loky")
    assert "from its source" in extras.rebuild()
