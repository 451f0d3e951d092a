"""The house rules that a machine can check: sizes, import cost, clean text, change notes, the public list."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import resource
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringwright

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "ringwright"
LABORATORY = REPOSITORY / "lab" / "src" / "ringwright_lab"
MODULES = sorted([*PACKAGE.rglob("*.py"), *LABORATORY.rglob("*.py")])

FORBIDDEN_MODULES = {"base", "common", "core", "helpers", "manager", "misc", "utils"}
REGISTRY_HOSTS = [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("deb", "debian", "org")]
# Assembled, so that this file passes its own test.
FORBIDDEN_TEXT = [
    *("/" + folder + "/" for folder in ("work", "home")),
    *(".".join(host) for host in REGISTRY_HOSTS),
    "file:" + "//",
]
IMPORT_BUDGET_S = 0.15
# Functions that return arrays without telling dtype and shape; this number may only fall.
SILENT_ARRAYS = 0
DTYPE = re.compile(r"\b(u?int(8|16|32|64)|float(16|32|64)|bool|dtypes?)\b")
SHAPE = re.compile(r"\b(shape|length)\b")
CHANGE_NOTE = re.compile(r"[a-z0-9][a-z0-9-]*\.(added|changed|fixed|removed)\.md")


def tracked_files() -> list[Path]:
    """Return the files git knows, or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout
    files = (REPOSITORY / os.fsdecode(name) for name in listed.split(b"\0") if name)
    return [path for path in files if path.is_file()]


def percentile_90(values: list[int]) -> int:
    return sorted(values)[int(0.9 * (len(values) - 1))]


def statements(tree: ast.Module) -> list[ast.AST]:
    """Return what has a place in a file's blocks: no function is inside of an expression."""
    found: list[ast.AST] = [tree]
    for node in found:
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            held = getattr(node, block, None)
            found += held if isinstance(held, list) else ()
    return found


def function_lengths() -> Iterator[tuple[int, str]]:
    """Yield the lines of each function from ``def`` to its end, its docstring left out."""
    for module in MODULES:
        for node in statements(ast.parse(module.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
                continue
            lines = node.end_lineno - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node, clean=False) is not None and first.end_lineno is not None:
                lines -= first.end_lineno - first.lineno + 1
            yield lines, f"{module.relative_to(REPOSITORY)}:{node.lineno} {node.name}"


def test_functions_stay_short() -> None:
    lengths = list(function_lengths())
    too_long = [f"{place} ({lines} lines)" for lines, place in lengths if lines > 80]
    assert not too_long
    longest = sorted(lengths, reverse=True)[:10]
    assert percentile_90([lines for lines, _ in lengths]) <= 35, longest


def test_files_stay_short() -> None:
    lengths = {module: len(module.read_text().splitlines()) for module in MODULES}
    assert not [f"{module} ({lines} lines)" for module, lines in lengths.items() if lines > 600]
    longest = sorted(lengths.items(), key=lambda item: -item[1])[:5]
    assert percentile_90(list(lengths.values())) <= 300, longest


def public_arrays() -> Iterator[tuple[str, str]]:
    """Yield (place, docstring) of every public function or property whose annotation says that arrays come back."""
    for module in MODULES:
        parts = module.relative_to(PACKAGE if PACKAGE in module.parents else LABORATORY).parts
        if any(part.startswith("_") and part != "__init__.py" for part in parts):
            continue
        if "ndarray" in (text := module.read_text()):
            yield from arrays_inside(ast.parse(text).body, "/".join(parts))


def arrays_inside(body: list[ast.stmt], where: str) -> Iterator[tuple[str, str]]:
    for node in body:
        name = getattr(node, "name", "_")
        if name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from arrays_inside(node.body, f"{where} {name}")
        elif isinstance(node, ast.FunctionDef) and node.returns and "ndarray" in ast.unparse(node.returns):
            yield f"{where}:{node.lineno} {name}", ast.get_docstring(node) or ""


def test_who_returns_arrays_tells_dtype_and_shape() -> None:
    every = list(public_arrays())
    assert len(every) > 80, "the annotations are looked for in the wrong place"
    silent = [place for place, text in every if not (DTYPE.search(text) and SHAPE.search(text))]
    assert len(silent) <= SILENT_ARRAYS, silent
    assert len(silent) == SILENT_ARRAYS, "fewer are silent: lower SILENT_ARRAYS"


def test_every_room_has_a_first_page() -> None:
    """What comes in, what goes out, where to start reading: names in code are modules of the room, or beside it."""
    for front in sorted(PACKAGE.glob("*/__init__.py")):
        page = ast.get_docstring(ast.parse(front.read_text())) or ""
        assert all(word in page for word in ("In: ", "Out: ", "Start reading: ")), front
        assert len(page.splitlines()) <= 20, front
        for name in re.findall(r"`([a-z_0-9.]+)`", page.partition("Start reading: ")[2].replace("``", "")):
            path = front.parent / name.replace(".", "/")
            assert path.with_suffix(".py").is_file() or path.exists(), f"{front}: {name}"


def test_no_module_has_an_empty_name() -> None:
    named = [
        path
        for folder in (PACKAGE, LABORATORY)
        for path in folder.rglob("*")
        if path.stem.strip("_") in FORBIDDEN_MODULES
    ]
    assert not named


def seconds(code: str) -> float:
    """Return the processor time of an interpreter: what else the machine does is not in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_import_is_cheap() -> None:
    """Median of five, less what the bare interpreter takes, measured turn by turn."""
    extra = [seconds("import ringwright") - seconds("pass") for _ in range(5)]
    assert statistics.median(extra) < IMPORT_BUDGET_S, extra


def test_import_brings_no_library() -> None:
    libraries = {"polars", "torch", "pandas", "numpy", "rich", "cyclopts", "jinja2", "rustworkx"}
    code = f"import sys, ringwright; print(*{libraries!r} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert not loaded.strip()


def test_no_machine_path_and_no_registry_address() -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # recordings and pictures
        found += [f"{path.relative_to(REPOSITORY)}: {word}" for word in FORBIDDEN_TEXT if word in text]
    assert not found


def test_no_lock_file_with_addresses() -> None:
    assert not [path for path in tracked_files() if path.name in {"uv.lock", "poetry.lock", "Pipfile.lock"}]


def test_constraints_are_exact_and_light() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert not [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", pin)]
    assert pins == sorted(pins, key=str.lower)
    heavy = [pin for pin in pins if re.match(r"(torch|nvidia|cuda|triton)", pin, re.IGNORECASE)]
    assert all(re.fullmatch(r"torch==[0-9.]+\+cpu", pin) for pin in heavy)  # the build without CUDA, for real ranks


def test_change_notes_are_well_formed() -> None:
    notes = [path for path in (REPOSITORY / "changes").iterdir() if path.name != "README.md"]  # none behind a release
    assert not [path.name for path in notes if not CHANGE_NOTE.fullmatch(path.name)]
    for path in notes:
        text = path.read_text().strip()
        assert text.endswith("."), f"{path.name}: a note is a sentence"
        assert len(text) <= 400, f"{path.name}: a note is one sentence, not a page"


def test_public_names_are_sorted_and_real() -> None:
    assert list(ringwright.__all__) == sorted(ringwright.__all__)
    assert dir(ringwright) == list(ringwright.__all__)
    for name in ringwright.__all__:
        assert getattr(ringwright, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = ringwright.nothing_of_the_kind


def test_version_is_told_once() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]
    assert importlib.metadata.version("ringwright") == ringwright.__version__
    assert f"\nversion: {ringwright.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text()


SCRIPTS = [
    ".ci/run",
    "scripts/fuzz-topologies",
    "scripts/format",
    "scripts/readme",
    "scripts/ringwright",
    "scripts/test",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run(script: str) -> None:
    path = REPOSITORY / script
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env ")


def test_package_data_ships() -> None:
    """What is not Python in the package must be known to git, or the wheel leaves it out."""
    kinds = {".js", ".css", ".j2", ".html", ".gz", ".zst", ".log", ".json", ".toml", ".typed"}
    data = {path for path in PACKAGE.rglob("*") if path.suffix in kinds and "__pycache__" not in path.parts}
    assert PACKAGE / "py.typed" in data
    assert not data - set(tracked_files())
