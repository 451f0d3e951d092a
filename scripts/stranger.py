"""A stranger's part of every kind, added by file and by entry point: whole, and each broken in ten ways.

The parts are those of docs/template. Each is broken by changing one line of its file; then it is loaded, from the file or through
an entry point of a distribution that is made for it, and its contract is run. Printed is what the contract says.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from ringwright.formats.sources import kinds
from ringwright.model import registry
from ringwright_lab.contracts.conformance import Outcome
from ringwright_lab.testing import (
    check_algorithm,
    check_codec,
    check_executor,
    check_law,
    check_pipeline,
    check_scheduler,
    check_source,
)

TEMPLATE = Path(__file__).resolve().parents[1] / "docs" / "template" / "src" / "ringwright_template"
ROWS = (
    "rank,op,bytes,start_us,time_us\n"
    "0,all-reduce,1024,10,5\n1,all-reduce,1024,12,4\n0,all-reduce,64,30,5\n1,all-reduce,64,31,4\n"
)
WAYS = ("file", "entry point")


@dataclass(frozen=True)
class Part:
    """A file of the template: what it adds, its function, the group of entry points, and how its contract is run."""

    what: str
    module: str
    function: str
    group: str
    check: Callable[[Any], list[Outcome]]


def of_reader(read: Any) -> list[Outcome]:
    """Run the contract of readers on a small file."""
    with tempfile.TemporaryDirectory(prefix="ringwright-") as folder:
        file = Path(folder) / "ops.csv"
        file.write_text(ROWS)
        return check_source(read, file)


PARTS = {
    "algorithm": Part(
        "algorithm",
        "stride_ring",
        "stride_ring",
        "algorithms",
        lambda part: check_algorithm(part, group_sizes=(1, 2, 5), sizes=("zero", "ragged", "even"), knobs=False),
    ),
    "scheduler": Part(
        "scheduler",
        "smallest_first",
        "smallest_first",
        "schedulers",
        lambda part: check_scheduler(part, seeds=range(2), knobs=False),
    ),
    "reader": Part("reader", "op_csv", "read_op_csv", "sources", of_reader),
    "codec": Part("codec", "three_levels", "three_levels", "codecs", check_codec),
    "pipeline": Part("pipeline", "one_by_one", "SCHEDULE", "pipelines", check_pipeline),
    "law": Part("law", "whole_elements", "LAW", "laws", check_law),
    "executor": Part("executor", "polite", "EXECUTOR", "executors", check_executor),
}


@dataclass(frozen=True)
class Break:
    """One line of a part, changed: what is wrong, the old and the new text, and the check that must say so."""

    part: str
    what: str
    check: str
    old: str
    new: str


KEYS = "keys={each.name: place for place, each in enumerate(by_size)},"
LUCK = "keys={each.name: __import__('random').random() for each in by_size},"
BY_RANK = "keys={each.name: hash((__import__('os').urandom(8), place)) % 97 for place, each in enumerate(by_size)},"
UNKNOWN = "keys={each.name + '?': place for place, each in enumerate(by_size)},"
DONE = 'return workload.with_policy("smallest-first", queue=queue, boundary="layer")'
BEGIN = "    def steps()"


def changed(part: str, value: str) -> str:
    """Return the end of a scheduler that changes a part of the workload before it is done."""
    return f"import dataclasses as d\n    workload = d.replace(workload, {part}=tuple({value}))\n    {DONE}"


IDLE = changed("tasks", "d.replace(each, seconds=0.0) for each in workload.tasks")
FEWER = changed("payloads", "workload.payloads[1:]")
SMALLER = changed("payloads", "d.replace(each, size_bytes=each.size_bytes // 2) for each in workload.payloads")
BROKEN = (
    Break("algorithm", "a wrong chunk goes round", "legal", "-k * stride", "-2 * k * stride"),
    Break("algorithm", "the last step is missing", "legal", "range(p - 1):", "range(p - 2):"),
    Break("algorithm", "it declares no OPS", "declared", 'OPS = ("all-gather",)', "OPS = ()"),
    Break("algorithm", "OPS of another library", "declared", 'OPS = ("all-gather",)', 'OPS = ("allgather",)'),
    Break("algorithm", "half the start-ups", "closed-form", "Term(p - 1, path_bytes)", "Term((p - 1) / 2, path_bytes)"),
    Break("algorithm", "too few bytes", "legal", "sent_bytes=p * path_bytes", "sent_bytes=path_bytes / 2"),
    Break("algorithm", "what should be sent is added", "legal", "Op.SEND", "Op.REDUCE"),
    Break("algorithm", "one step more is declared than there are", "legal", "steps, p - 1, cost", "steps, p, cost"),
    Break("algorithm", "an error of Python", "program", BEGIN, f"    p = p if p != 5 else p / 0\n\n{BEGIN}"),
    Break("algorithm", "it returns no program", "program", BEGIN, f"    return None\n\n{BEGIN}"),
    Break("scheduler", "an order drawn by luck", "same-again", KEYS, LUCK),
    Break("scheduler", "an order that differs by rank", "same-on-every-rank", KEYS, BY_RANK),
    Break("scheduler", "tasks lose their time", "alone", DONE, IDLE),
    Break("scheduler", "a payload is lost", "alone", DONE, FEWER),
    Break("scheduler", "bytes are lost", "alone", DONE, SMALLER),
    Break("scheduler", "it returns nothing", "workload", DONE, DONE.replace("return ", "")),
    Break("scheduler", "an error of Python", "workload", DONE, "raise KeyError('gradients')"),
    Break("scheduler", "a window of no operation", "legal", "float(at_once)", "-float(at_once)"),
    Break("scheduler", "keys of payloads that do not exist", "legal", KEYS, UNKNOWN),
    Break("scheduler", "a boundary that nobody knows", "legal", 'boundary="layer"', 'boundary="sometimes"'),
    Break("reader", "an operation in other words", "operations", "op=words[1],", "op=words[1].replace('-', '_'),"),
    Break("reader", "rows without records", "counts", "records=1,", "records=0,"),
    Break("reader", "a multiplicity of none", "counts", "multiplicity=1,", "multiplicity=0,"),
    Break("reader", "times without a clock", "clocks", 'clock="wall",', "clock=None,"),
    Break("reader", "a column that does not exist", "read", "multiplicity=1,", "multiplicity=1, seq=1,"),
    Break("reader", "ranks without devices", "devices", "gathered.device(rank)  #", "pass  #"),
    Break("reader", "no ground", "grounds", 'ground="read",', 'ground="",'),
    Break("reader", "a confidence above one", "grounds", "confidence=1.0,", "confidence=2.0,"),
    Break("reader", "a time below nothing", "clocks", "duration_s=time_us / 1e6,", "duration_s=-time_us / 1e6,"),
    Break("reader", "an empty file is an empty Trace", "nothing", "if not gathered.events.total:", "if False:"),
)


NOISE = "(sent * np.random.default_rng().random()).sum(axis=0)"
FLIP = (
    "import subprocess as s, sys; from pathlib import Path; from ringwright.execute.job import *;"
    "s.run(sys.argv[1:]); at = Path(sys.argv[-2]) / f'answer-{sys.argv[-1]}'; found = read_struct(at, list[NodeResult]);"
    "[setattr(e, 'results', [(b, n, bytes([p[0] ^ 1]) + p[1:] if p else p) for b, n, p in e.results]) for e in found];"
    "write(at, found)"
)
START = 'argv=("nice", "-n", "5", *start.argv)'
STARTS = "starts = super().starts(*given, **named)"
SAYS = 'says="local processes that share memory and give way to others"'
IN_TURN = 'for batch in range(shape.micro_batches) for phase in "FB"'
SENTENCE = '"what an operation moves is a whole number of its elements"'
LEFT = "if left else"
PYTHON = "__import__('sys').executable, '-c'"
BROKEN += (
    Break("codec", "a sum that is too large", "near", "sent.sum(axis=0)", "sent.sum(axis=0) * 3"),
    Break("codec", "nearer than it is", "near", "TOLERANCE = 0.75", "TOLERANCE = 0.1"),
    Break("codec", "narrower than it is", "width", "0.25 + 4 / packet", "0.125 + 4 / packet"),
    Break("codec", "a width of nothing", "width", "0.25 + 4 / packet, 1.0", "0.25 + 4 / packet, 0.0"),
    Break("codec", "no tolerance", "declared", "TOLERANCE = 0.75", "LIMIT = 0.75"),
    Break("codec", "an operation of other words", "declared", 'OPS = ("sum",)', 'OPS = ("plus",)'),
    Break("codec", "a switch that adds no such type", "able", 'ADDED_AS = "uint32"', 'ADDED_AS = "float64"'),
    Break("codec", "no source", "documented", "Source: none: an example.", "Nothing."),
    Break("codec", "a sum drawn by luck", "same-again", "sent.sum(axis=0)", NOISE),
    Break(
        "codec", "NaN becomes a number", "edges", "np.where(known, step, 0), np.nan)", "np.where(known, step, 0), 0)"
    ),
    Break("pipeline", "backward before forward", "ends", '"FB"', '"BF"'),
    Break(
        "pipeline",
        "the last pass is missing",
        "whole",
        f"tuple((phase, 0, batch) {IN_TURN})",
        f"tuple([(phase, 0, batch) {IN_TURN}][:-1])",
    ),
    Break("pipeline", "a pass twice", "whole", '"FB"', '"FBF"'),
    Break(
        "pipeline", "all forward first", "held", IN_TURN, 'for phase in "FB" for batch in range(shape.micro_batches)'
    ),
    Break("pipeline", "nothing is held", "held", "return 1", "return 0"),
    Break("pipeline", "it does not say what is held", "held", ", held=held", ""),
    Break("pipeline", "passes of other words", "named", '"FB"', '"fb"'),
    Break("pipeline", "halves that it does not have", "named", "chunks=1,", "chunks=1, splits=True,"),
    Break("pipeline", "an error of Python", "orders", "del device", "device / 0"),
    Break("pipeline", "no pipeline is long enough", "orders", "chunks=1,", "chunks=1, least=1000,"),
    Break("law", "it never refuses", "refuses", LEFT, "if False else"),
    Break("law", "it always refuses", "kept", LEFT, "if True else"),
    Break("law", "it refuses without a word", "why", 'B" if left else ""', 'B"[:0] or left'),
    Break(
        "law",
        "it says something else each time",
        "why",
        "{left} B of",
        "{left} B {__import__('os').urandom(8).hex()} of",
    ),
    Break("law", "no source", "stated", '"MPI 4.1, section 3.2.2: a message is a sequence of entries"', '""'),
    Break("law", "no sentence", "stated", SENTENCE, '"whole"'),
    Break("law", "no example that keeps it", "kept", "kept=((4096, 4), (0, 8))", "kept=()"),
    Break("law", "no example that breaks it", "refuses", "broken=((4097, 4), (4, 8))", "broken=()"),
    Break("law", "an example the wrong way round", "kept", "kept=((4096, 4), (0, 8))", "kept=((4097, 4), (0, 8))"),
    Break(
        "law", "an error of Python", "refuses", "size_bytes % item_bytes", "0 if size_bytes == 4096 else size_bytes % 0"
    ),
    Break("executor", "wrong bits", "right", START, f"argv=({PYTHON}, {FLIP!r}, *start.argv)"),
    Break("executor", "ranks that end at once", "right", START, f"argv=({PYTHON}, '')"),
    Break("executor", "ranks that do not exist", "right", START, "argv=('no-such-command', *start.argv)"),
    Break("executor", "a rank is not started", "starts", STARTS, f"{STARTS}[1:]"),
    Break("executor", "a rank is started twice", "starts", STARTS, f"{STARTS} * 2"),
    Break("executor", "nobody is started", "starts", STARTS, "starts = []"),
    Break("executor", "an error of Python", "starts", STARTS, "starts = 1 / 0"),
    Break("executor", "it does not say what it is", "declared", f", {SAYS}", ""),
    Break("executor", "no wire", "declared", '"memory"', '""'),
    Break("executor", "ranks that nobody knows", "declared", '"memory"', '"memory", "pigeons"'),
)


def text_of(part: Part, broken: Break | None) -> str:
    """Return the file of a part, with its line changed; SystemExit where the template has no such line."""
    text = (TEMPLATE / f"{part.module}.py").read_text()
    if broken is None:
        return text
    if text.count(broken.old) < 1:
        raise SystemExit(f"{part.module}.py has no line with: {broken.old}")
    return text.replace(broken.old, broken.new, 1)


@contextmanager
def loaded(part: Part, text: str, way: str) -> Iterator[Any]:
    """Give the part as it is loaded from a file, or through an entry point of a distribution that is installed for a moment."""
    with tempfile.TemporaryDirectory(prefix="ringwright-") as folder:
        file = Path(folder) / f"stranger_{part.module}.py"
        file.write_text(text)
        if way == "file":
            spec = spec_from_file_location(file.stem, file)
            if spec is None or spec.loader is None:
                raise SystemExit(f"{file} cannot be loaded")
            module = sys.modules[file.stem] = module_from_spec(spec)
            spec.loader.exec_module(module)
            yield getattr(module, part.function)
            del sys.modules[file.stem]
            return
        notes = Path(folder) / "stranger-1.0.dist-info"
        notes.mkdir()
        (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
        (notes / "entry_points.txt").write_text(f"[ringwright.{part.group}]\nstrangers = {file.stem}:{part.function}\n")
        sys.path.insert(0, folder)
        try:
            yield _by_name(part)
        finally:
            sys.path.remove(folder)
            sys.modules.pop(file.stem, None)


def _by_name(part: Part) -> Any:
    """Return what the product loads under the name of the entry point; of kinds whose contract takes one, the name."""
    if part.group in ("codecs", "pipelines", "laws", "executors"):
        return "strangers"
    if part.group == "sources":
        return kinds.kinds()["strangers"].read
    among = registry.schedulers if part.group == "schedulers" else registry.systems
    return registry.find("strangers", among).load()


def told(broken: Break | None, part: Part, way: str) -> dict[str, str]:
    """Return what the contract says of a part, by check; ``load`` where it is refused before any check."""
    with loaded(part, text_of(part, broken), way) as function:
        outcomes = part.check(function)
    return {check: words for outcome in outcomes for check, words in outcome.failed.items()}


def main(arguments: list[str] | None = None) -> int:
    """Print what each contract says; 1 where something whole is blamed or something broken is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=WAYS, help="file or entry point, else both")
    given = parser.parse_args(arguments)
    missed = 0
    for way in WAYS if given.by is None else (given.by,):
        for part in PARTS.values():
            said = told(None, part, way)
            missed += bool(said)
            print(f"{part.what}, whole, by {way}: {said or 'every check passes'}")
            for broken in (each for each in BROKEN if each.part == part.what):
                said = told(broken, part, way)
                missed += broken.check not in said
                words = said.get(broken.check, f"NOBODY SAID SO, but {said}").splitlines()[0]
                print(f"  {broken.what}\n      {broken.check}: {words}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
