"""The package by itself: built from its source distribution, installed in another place, every verb asked there."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

import ringwright
from ringwright import native
from ringwright.ground import laboratory

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "ringwright"
LABORATORY = REPOSITORY / "lab" / "src" / "ringwright_lab"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
CODE = {".py", ".pyi", ".c", ".h", ".cpp", ".hpp", ".j2", ".css", ".js", ".so", ".pyc", ".typed", ".html"}
LICENCE = re.compile(r"\b(MIT-0|MIT|Apache-2\.0|BSD-3-Clause|MPICH licence)\b")


def script(name: str) -> dict[str, object]:
    return runpy.run_path(str(REPOSITORY / "scripts" / name))


def run(*command: str, cwd: Path, **settings: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **settings}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def build_wheel(source: Path, out: Path, **settings: str) -> Path:
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "-w", str(out), str(source), cwd=out, **settings)
    (wheel,) = out.glob("*.whl")
    return wheel


def ask_every_verb(folder: Path, *wheels: Path, of: tuple[str, ...] = ()) -> dict[str, object]:
    """Install wheels into an environment of its own, which finds the libraries of this one but not this checkout."""
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "there"), cwd=folder)
    python = folder / "there" / "bin" / "python"
    (site,) = (folder / "there").glob("lib/python*/site-packages")
    libraries = Path(pytest.__file__).parents[1]
    (site / "libraries.pth").write_text(f"{libraries}\n")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-compile",
    )
    run(*pip, *map(str, wheels), cwd=folder)
    assert "ringwright" in run(str(python.with_name("ringwright")), "--help", cwd=folder, PYTHONPATH="")
    asked = REPOSITORY / "scripts" / "every_verb.py"
    told: dict[str, object] = json.loads(
        run(str(python), str(asked), "--json", "--of", ",".join(of), cwd=folder, PYTHONPATH="")
    )
    return told


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    build = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
    run(sys.executable, "-c", build, cwd=REPOSITORY)
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.mark.slow
def test_without_the_compiled_part_it_is_one_wheel_for_all_and_answers_anywhere(sdist: Path, tmp_path: Path) -> None:
    """Built from the source distribution; no verb needs the checkout, notes and licences are in."""
    wheel = build_wheel(sdist, tmp_path, RINGWRIGHT_NATIVE="OFF")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith((".so", ".cpp", ".hpp"))]
    for licence in PROJECT["project"]["license-files"]:
        assert any(name.endswith(f"licenses/{licence}") for name in names), licence
    shipped = {name for name in names if name.startswith("ringwright/")}
    kept = [
        path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in {".cpp", ".hpp", ".so", ".pyc"}
    ]
    assert {str(path.relative_to(PACKAGE.parent)) for path in kept} == shipped
    told = ask_every_verb(tmp_path, wheel, of=("summary", "simulate", *laboratory.VERBS))  # the others: below
    assert told["failures"] == []
    assert told["compiled"] is False
    assert told["laboratory"] is False  # its verbs said what to install


@pytest.mark.slow
@pytest.mark.skipif(not native.NATIVE, reason="no compiler built the compiled part here")
def test_with_the_compiled_part_it_answers_anywhere(tmp_path: Path) -> None:
    """Built from the checkout, whose objects are compiled already; the same sources as those of the distribution."""
    wheel = build_wheel(REPOSITORY, tmp_path)
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{tag}-{tag}-" in wheel.name or "-cp312-abi3-" in wheel.name
    (tmp_path / "lab").mkdir()
    second = build_wheel(REPOSITORY / "lab", tmp_path / "lab")
    shipped = {name for name in zipfile.ZipFile(second).namelist() if name.startswith("ringwright_lab/")}
    kept = [path for path in LABORATORY.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {str(path.relative_to(LABORATORY.parent)) for path in kept} == shipped
    told = ask_every_verb(tmp_path, wheel, second)
    assert told["failures"] == []
    assert told["compiled"] is True
    assert told["laboratory"] is True


@pytest.mark.slow
def test_the_source_distribution_holds_what_builds_and_tests_it(sdist: Path) -> None:
    for name in (
        "LICENSE",
        "NOTICE",
        "CHANGELOG.md",
        "CMakeLists.txt",
        "constraints.txt",
        "scripts/test",
        "docs/how-to/install.md",
    ):
        assert (sdist / name).is_file(), name
    assert not [path for path in sdist.rglob("*") if path.name in {".venv", ".git", "build", "__pycache__"}]
    native_sources = {path.name for path in (PACKAGE / "native").glob("*.[ch]pp")}
    assert native_sources == {path.name for path in (sdist / "src" / "ringwright" / "native").glob("*.[ch]pp")}


def test_nothing_in_the_package_looks_above_it() -> None:
    """What lies above the package's folder is there in a checkout alone; where it may lie itself, ranks must be told."""
    told_to_ranks = {"execute/launch.py", "execute/rank_processes.py"}
    above = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE)
        for depth in re.findall(r"__file__\)(?:\.resolve\(\))?\.parents\[(\d+)\]", path.read_text()):
            if int(depth) >= len(name.parts):
                above.add(str(name))
    assert above == told_to_ranks


def test_no_message_sends_to_a_page_or_script_of_the_checkout() -> None:
    """Whoever installed a wheel has neither; what a message names is in the package, or in the message."""
    told = []
    for path in [*PACKAGE.rglob("*.py"), *LABORATORY.rglob("*.py")]:
        text = path.read_text()
        tree = ast.parse(text if re.search(r"\b(docs|scripts|tests|reproduce)/", text) else "")
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            words = [
                part.value
                for each in call.keywords
                if each.arg == "remedy"
                for part in ast.walk(each.value)
                if isinstance(part, ast.Constant)
            ]
            told += [
                f"{path.name}:{call.lineno}"
                for word in words
                if re.search(r"\b(docs|scripts|tests|reproduce)/", str(word))
            ]
    assert not told


@pytest.mark.parametrize("package", [PACKAGE, LABORATORY], ids=lambda package: package.name)
def test_every_data_file_has_its_source_and_licence_in_the_notice(package: Path) -> None:
    project = package.parents[1]
    notice = (project / "NOTICE").read_text()
    entries: dict[str, str] = {}
    for block in re.split(r"\n(?=src/)", notice)[1:]:
        lines = block.split("\n")
        named = [line for line in lines if line.startswith("src/")]
        entries |= dict.fromkeys(named, block.partition("\n\n")[0])
    for pattern in entries:
        assert list(project.glob(pattern)), f"{pattern} is no file"
    data = [path for path in package.rglob("*") if path.is_file() and path.suffix not in CODE and path.name != "NOTICE"]
    for path in data:
        name = str(path.relative_to(project))
        matching = [text for pattern, text in entries.items() if fnmatch(name, pattern)]
        assert matching, f"{name} is not in NOTICE"
        if path.suffix == ".json" and (source := json.loads(path.read_text()).get("source")):
            assert set(LICENCE.findall(source)) <= set(LICENCE.findall(matching[0])), name


def test_the_oldest_versions_are_tried_as_they_are_declared() -> None:
    minimum = script("minimum-versions")
    assert minimum["unfloored"]() == []  # type: ignore[operator]
    floors = minimum["floors"]()  # type: ignore[operator]
    extras = PROJECT["project"]["optional-dependencies"]
    declared = {*PROJECT["project"]["dependencies"], *(each for extra in extras.values() for each in extra)}
    own = {each for each in declared if each.startswith("ringwright[")} | set(minimum["unfloored"]())  # type: ignore[operator]
    assert {f"{name}>={version}" for name, version in floors.items()} == declared - own
    pinned = re.findall(r"^([\w.-]+)==([\w.+]+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
    newest = {name.lower().replace("_", "-"): numbers(version) for name, version in pinned}
    assert set(floors) <= set(newest)
    assert not [name for name, version in floors.items() if newest[name] < numbers(version)]
    listed = run(sys.executable, str(REPOSITORY / "scripts" / "minimum-versions"), "--list", cwd=REPOSITORY).split()
    assert listed == sorted(f"{name}=={version}" for name, version in floors.items())


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def test_every_verb_has_a_question() -> None:
    from ringwright.cli import app

    verbs = {name for name in app() if not name.startswith("-")}
    assert set(script("every_verb.py")["QUESTIONS"]) == verbs  # type: ignore[call-overload]


def test_the_wheels_of_a_release() -> None:
    """By the tool itself where it is at hand; the table that it reads otherwise."""
    wheels = script("wheels")
    table = PROJECT["tool"]["cibuildwheel"]
    assert table["build"] == [f"{python}-*" for python in wheels["PYTHONS"]]  # type: ignore[attr-defined]
    for platform, tags in wheels["PLATFORMS"].items():  # type: ignore[attr-defined]
        assert {tag.split("_", 1)[1] for tag in tags} == set(table[platform]["archs"])
    if subprocess.run([sys.executable, "-c", "import cibuildwheel"], capture_output=True, check=False).returncode == 0:
        run(sys.executable, str(REPOSITORY / "scripts" / "wheels"), cwd=REPOSITORY)


def test_the_change_log_is_made_from_the_notes(tmp_path: Path) -> None:
    changelog = script("changelog")
    before = (REPOSITORY / "CHANGELOG.md").read_text()
    made = changelog["log"](before, REPOSITORY / "changes")  # type: ignore[operator]
    for path in changelog["notes"](REPOSITORY / "changes"):  # type: ignore[operator]
        assert f"\n- {' '.join(path.read_text().split())}\n" in made, path.name
    assert changelog["log"](made, REPOSITORY / "changes") == made  # type: ignore[operator]
    for kind, text in (("fixed", "Mended\nhere.\n"), ("added", "New.\n")):
        (tmp_path / f"one.{kind}.md").write_text(text)
    first = changelog["log"]("", tmp_path)  # type: ignore[operator]
    assert first.endswith("## Unreleased\n\n### Added\n\n- New.\n\n### Fixed\n\n- Mended here.\n")
    released = changelog["released"](first, "0.2.0", "2030-01-02")  # type: ignore[operator]
    for path in tmp_path.glob("*.md"):
        path.unlink()
    after = changelog["log"](released, tmp_path)  # type: ignore[operator]
    assert after == first.replace("## Unreleased\n", "## Unreleased\n\n## 0.2.0 (2030-01-02)\n")
    assert changelog["log"](after, tmp_path) == after  # type: ignore[operator]
    told = changelog["released"](after, "0.3.0", "2030-02-03", "### Highlights\n\n- Best.\n")  # type: ignore[operator]
    assert told == after.replace("ased\n", "ased\n\n## 0.3.0 (2030-02-03)\n\n### Highlights\n\n- Best.\n")
    assert changelog["log"](told, tmp_path) == told  # type: ignore[operator]


def test_a_release_is_told_on_a_page_and_by_one_version() -> None:
    changelog = script("changelog")
    assert changelog["too_long"]("### Highlights\n\n- Best.\n") == []  # type: ignore[operator]
    assert changelog["too_long"]("### Added\n\n- New.\n") == ["0 highlights; 1 to 15 under ### Highlights"]  # type: ignore[operator]
    assert len(changelog["too_long"]("### Highlights\n" + "- Best.\n" * 151)) == 2  # type: ignore[operator]
    assert changelog["unlike"](ringwright.__version__) == []  # type: ignore[operator]
    assert len(changelog["unlike"]("0.0.1")) == 2  # type: ignore[operator]
    newest = (REPOSITORY / "CHANGELOG.md").read_text().split("\n## ")[2]
    assert newest.startswith(f"{ringwright.__version__} (")
    assert changelog["too_long"](newest) == []  # type: ignore[operator]
