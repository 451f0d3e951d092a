"""Chooses tests for scripts/test: a quick set, or those that can reach what has changed. Prints paths, a line each.

chosen_tests.py quick              a few modules and tests, one of every room at least, chosen for speed
chosen_tests.py changed [BASE]     changed since a commit (default: HEAD), by the imports of package, tests and scripts

A test reaches what it imports or names, and whatever that imports, in functions too. Without a path, everything is meant.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSIDE = ("ringwright.", "ringwright_lab.")
OLD_PATHS = "src/ringwright/ground/moved.py"  # names every module, and loads what nobody here asks for
TOO_WIDE = {"ringwright", "ringwright_lab"}  # the faces load by name, and not what lies in their folders
TOPS = {"src": ROOT / "src", "lab": ROOT / "lab" / "src", "tests": ROOT / "tests", "scripts": ROOT / "scripts"}
EVERYTHING = re.compile(
    r"pyproject\.toml|constraints\.txt|CMakeLists\.txt|scripts/(_environment|test)|tests/conftest\.py"
)
PROSE = re.compile(r".*\.md|docs/.*|changes/.*|CITATION\.cff|NOTICE|LICENSE|\.[^/]+.*|scripts/[^/.]+")  # read by name
QUICK = """
advise/test_seconds.py algebra/test_columns.py algorithms/test_nccl_trees.py analysis/test_bandwidth.py
capture/test_profiler_damage.py cli/test_bounds_shown.py codecs/test_codec_width.py
contracts/test_noun_fields.py costs/test_loggp.py engines/test_job_layout.py execute/test_execute_plan.py
executors/test_fan_out.py::test_spellings exports/test_timelines.py fabrics/test_packets.py house/test_chosen.py
house/test_glossary.py house/test_tiers.py
innetwork/test_devices.py lab/test_looped_products.py
laws/test_law_places.py::test_the_table_counts_what_is_wrong_and_what_is_missed native/test_hostile_arrays.py
papers/test_reproduce.py::test_rows_that_fail_say_why_and_others_do_not reports/test_learning_curves.py
rewrites/test_rewrites.py schedulers/test_odd_forms.py serve/test_workspace.py sources/test_nccl_layouts.py
studies/test_seats.py studies/test_provision_network.py survey/test_in_network.py testing/test_strategies.py
validity/test_workload_waits.py workloads/test_update_parts.py test_units.py
""".split()


def main(arguments: list[str]) -> int:
    """Print what is chosen; say on standard error of how many."""
    match arguments:
        case ["quick"]:
            print(*(f"tests/{each}" for each in QUICK), sep="\n")
        case ["changed", *base] if len(base) <= 1:
            every = test_modules()
            found = chosen(changed(*base))
            print(f"{len(every) if found is None else len(found)} of {len(every)} test modules", file=sys.stderr)
            print(*(["tests"] if found is None else found), sep="\n")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def changed(base: str = "HEAD") -> list[str]:
    """Return the paths of files that differ from a commit, with those that git does not know yet."""
    lists = (["diff", "--name-only", "--no-renames", base, "--"], ["ls-files", "--others", "--exclude-standard"])
    told = [subprocess.run(["git", *each], cwd=ROOT, check=True, capture_output=True, text=True) for each in lists]
    return sorted({line for each in told for line in each.stdout.splitlines()})


def chosen(paths: Iterable[str]) -> list[str] | None:
    """Return the test modules that can reach some of those files; None where it may be any."""
    roots, named = set(), set()
    for path in paths:
        if EVERYTHING.fullmatch(path):
            return None
        if path.endswith(".py") and path.partition("/")[0] in TOPS:
            roots.add(path)
        elif PROSE.fullmatch(path) or path.startswith("benchmarks/"):
            named.add(path)
        else:
            return None
    within = {each: reached(each) for each in test_modules()} if roots else {}
    if not roots <= set().union(*within.values()):
        return None  # loaded in a way that is not seen here, as is what runs inside a recorded job
    found = [each for each, files in within.items() if not roots.isdisjoint(files)]
    if named or any(path.startswith("scripts/") for path in roots):
        found += [each for each in test_modules() if each.startswith("tests/house/")]
        names = {Path(path).name for path in named}
        found += [each for each in test_modules() if any(name in (ROOT / each).read_text() for name in names)]
    return sorted(set(found))


def test_modules() -> list[str]:
    """Return the paths of all test modules."""
    return sorted(str(path.relative_to(ROOT)) for path in TOPS["tests"].rglob("test_*.py"))


def reached(path: str) -> set[str]:
    """Return the files that a file can load, itself among them."""
    seen, waiting = {path}, [path]
    while waiting:
        fresh = _loads(waiting.pop()) - seen
        seen |= fresh
        waiting += fresh
    return {each.removesuffix(_FRONT) for each in seen}


# ------------------------------------------------------------------------------------------------------------- the graph
_BY_NAME = {"importlib", "importlib.import_module", "pkgutil"}
_FRONT = " as a front"  # of a package whose module is imported: what its functions would load is not


@cache
def _modules() -> dict[str, str]:
    """Return module -> path. Tests and scripts are found by their names alone, as they find each other."""
    modules = {}
    for top in reversed(TOPS.values()):
        for path in top.rglob("*.py"):
            parts = path.relative_to(top).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = str(path.relative_to(ROOT))
    return modules


@cache
def _parsed(path: str) -> tuple[str, ast.Module]:
    text = (ROOT / path).read_text()
    return text, ast.parse(text)


@cache
def _below(package: str) -> frozenset[str]:
    return frozenset(path for name, path in _modules().items() if name.startswith(f"{package}."))


@cache
def _loads(node: str) -> frozenset[str]:
    path = node.removesuffix(_FRONT)
    text, tree = _parsed(path)
    names = set(_imports(tree, everywhere=path == node))
    found = set()
    if path == node:
        names |= set(re.findall(r"[\"'](ringwright(?:_lab)?\.[\w.]+):\w+[\"']", text))
        if not path.startswith(("src/", "lab/")):
            words = set(_words(tree))
            found |= {_modules()[word] for word in words & _modules().keys() if word.startswith(INSIDE)}
            found |= {each for each in _modules().values() if each.startswith("scripts/") and _named(each, words)}
            names |= {"ringwright.__main__"} if "ringwright" in words else set()
        elif not names.isdisjoint(_BY_NAME) and path != OLD_PATHS:
            found |= _by_folder(path, set(_words(tree)))
    for name in names:
        parts = name.split(".")
        if name in _modules():
            found.add(_modules()[name])
        fronts = (".".join(parts[:count]) for count in range(1, len(parts)))
        found |= {_modules()[front] + _FRONT for front in fronts if front in _modules()}
    return frozenset(found)


def _imports(tree: ast.AST, *, everywhere: bool) -> Iterator[str]:
    """Yield every module that an import names or takes a name from; not those for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            members = [f"{node.module}.{each.name}" for each in node.names]
            yield from (each if each in _modules() or each in _BY_NAME else node.module or "" for each in members)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif everywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(node, everywhere=everywhere)


def _words(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, and the words of each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
            yield from re.findall(r"[\w.]*\w", node.value)


def _named(script: str, words: set[str]) -> bool:
    path = Path(script)
    return not words.isdisjoint({path.name, path.stem, path.stem.replace("_", "-"), str(path)})


def _by_folder(path: str, words: set[str]) -> set[str]:
    """Return what a module that imports by name may load: what it names, and all below its own package and folders."""
    package = ".".join(Path(path.removeprefix("lab/")).parent.parts[1:])
    folders = {f"ringwright.{word.replace('/', '.')}" for word in words if "/" in word}
    folders |= {word.removesuffix(".") for word in words if word.endswith(".")} | ({package} - TOO_WIDE)
    below = {each for folder in folders if folder.startswith(INSIDE) for each in _below(folder)}
    return below | {_modules()[word] for word in words & _modules().keys() if word.startswith(INSIDE)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
