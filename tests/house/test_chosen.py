"""What scripts/test --quick and --changed run: one test of every room at least, and whatever can reach a change."""

from __future__ import annotations

import ast
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[2]
LOADER = SourceFileLoader("chosen_tests", str(REPOSITORY / "scripts" / "chosen_tests.py"))
SPEC = spec_from_loader(LOADER.name, LOADER)
assert SPEC is not None
chosen_tests = module_from_spec(SPEC)
LOADER.exec_module(chosen_tests)


def loads(path: str) -> set[str]:
    """Return what one file loads itself."""
    return {each.removesuffix(chosen_tests._FRONT) for each in chosen_tests._loads(path)}


def test_every_folder_of_tests_has_a_quick_one() -> None:
    tests = [path.relative_to(REPOSITORY / "tests") for path in (REPOSITORY / "tests").rglob("test_*.py")]
    quick = {Path(each.partition("::")[0]) for each in chosen_tests.QUICK}
    assert quick <= {*tests}
    assert {path.parts[0] for path in tests if len(path.parts) > 1} == {path.parts[0] for path in quick} - {
        path.name for path in quick
    }


@pytest.mark.parametrize("path", chosen_tests.QUICK)
def test_a_quick_module_is_not_left_out_whole(path: str) -> None:
    path, _, test = path.partition("::")
    tree = ast.parse((REPOSITORY / "tests" / path).read_text())
    assert not test or test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    whole = [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    ]
    assert not any(f"mark.{each}" in text for text in whole for each in ("slow", "browser", "lab", "mpi", "torch"))


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("src/ringwright/model/registry.py", "src/ringwright/algorithms/blocks/ring.py"),  # by folder
        ("src/ringwright/model/rewrites/kind.py", "src/ringwright/model/rewrites/kinds/collective.py"),
        (
            "src/ringwright/formats/sources/kinds/calls.py",
            "src/ringwright/formats/sources/calls/growing.py",
        ),  # by a name in a text
        ("src/ringwright/cli/application.py", "src/ringwright/cli/simulate.py"),  # a verb
        ("src/ringwright/__init__.py", "src/ringwright/jobs/predict.py"),  # the face
        ("src/ringwright/__main__.py", "src/ringwright/cli/__init__.py"),
        ("src/ringwright/fabrics/__init__.py", "src/ringwright/fabrics/_network.py"),  # in a function
        ("tests/cli/test_cli.py", "src/ringwright/__main__.py"),  # in a process of its own
        ("tests/cli/test_closed_outputs.py", "tests/analysis/test_diff_times.py"),
        ("tests/house/test_chosen.py", "scripts/chosen_tests.py"),
    ],
)
def test_what_a_file_loads_is_seen(path: str, wanted: str) -> None:
    assert wanted in loads(path)


def test_what_a_package_would_load_is_not_reached_by_its_modules() -> None:
    reached = chosen_tests.reached("tests/test_units.py")
    assert "src/ringwright/__init__.py" in reached
    assert "src/ringwright/ground/units.py" in reached
    assert not any(path.startswith(("src/ringwright/cli/", "src/ringwright/calls/")) for path in reached)


@pytest.mark.parametrize(
    "path",
    [
        "pyproject.toml",
        "tests/conftest.py",
        "scripts/test",
        "lab/src/ringwright_lab/papers/rows/p3.toml",
        "src/ringwright/native/_scan.cpp",
    ],
)
def test_what_any_test_may_read_chooses_all(path: str) -> None:
    assert chosen_tests.chosen([path]) is None


def test_a_page_chooses_the_house_and_who_names_it() -> None:
    found = chosen_tests.chosen(["docs/tutorials/tour.md"])
    assert {f"tests/house/{path.name}" for path in (REPOSITORY / "tests" / "house").glob("test_*.py")} <= set(found)
    assert len(found) < len(chosen_tests.test_modules()) / 4
    assert chosen_tests.chosen([]) == []


def test_a_change_chooses_itself_and_what_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    few = ["tests/test_message_pairs.py", "tests/test_units.py"]
    monkeypatch.setattr(chosen_tests, "test_modules", lambda: few)
    assert chosen_tests.chosen(["tests/test_message_pairs.py"]) == few[:1]
    assert "tests/test_units.py" in chosen_tests.chosen(["src/ringwright/ground/units.py"])
    assert chosen_tests.chosen(["src/ringwright/jobs/predict.py"]) is None  # reached by none of them


def test_the_number_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_tests, "changed", lambda base="HEAD": [] if base == "HEAD" else ["pyproject.toml"])
    number = len(chosen_tests.test_modules())
    for base, told, paths in (
        ([], f"0 of {number} test modules\n", "\n"),
        (["main"], f"{number} of {number} test modules\n", "tests\n"),
    ):
        assert chosen_tests.main(["changed", *base]) == 0
        captured = capsys.readouterr()
        assert (captured.err, captured.out) == (told, paths)
    assert chosen_tests.main(["slowly"]) == 2
