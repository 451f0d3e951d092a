"""The contract of exports: the same bytes twice, and what is read back is what was written, but for a declared loss.

Beside the function that writes stand ``READER`` (what reads such a file back, ``module:function``; none: nothing here does) and
``LOSS`` (the views, of those below, that the format cannot hold).
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.exports import Export
from ringwright_lab.contracts.outcome import DECLINED, Outcome, TriedInput, beside, made

if TYPE_CHECKING:
    from ringwright.model.program import Program

Views = dict[str, Callable[[Any], object]]


def _between(program: Program) -> object:
    """Bytes from each rank to each other one, in all."""
    sent: Counter[tuple[int, int]] = Counter()
    for step in program.steps():
        for block in step.blocks:
            src, dst, slots, _ = block.arrays()
            sizes = program.layout.message_bytes(slots, block.span).tolist()
            for s, d, size in zip(src.tolist(), dst.tolist(), sizes, strict=True):
                sent[s, d] += size if s != d else 0
    return {pair: size for pair, size in sent.items() if size}


def _legal(program: Program) -> object:
    from ringwright.model import validity

    return [str(each) for each in validity.check(program)]


PROGRAM: Views = {
    "op": lambda program: program.collective.op,
    "ranks": lambda program: program.p,
    "root": lambda program: program.collective.root,
    "size": lambda program: program.collective.size_bytes,
    "bytes": _between,
    "legal": _legal,
    "name": lambda program: program.name,
    "cost": lambda program: program.cost,
}
TOPOLOGY: Views = {
    "ranks": lambda top: top.n_ranks,
    "nodes": lambda top: top.kinds.tolist(),
    "links": lambda top: sorted(zip(top.src.tolist(), top.dst.tolist(), strict=True)),
    "rates": lambda top: sorted(
        zip(top.src.tolist(), top.dst.tolist(), [f"{each:.6g}" for each in top.rate], strict=True)
    ),
    "latencies": lambda top: [f"{each:.6g}" for each in top.latency_s],
    "classes": lambda top: top.classes,
    "groups": lambda top: sorted((each.name, f"{each.rate:.6g}", each.links.tolist()) for each in top.groups),
    "hosts": lambda top: None if top.hosts is None else top.hosts.tolist(),
    "aggregators": lambda top: dict(top.aggregators),
    "name": lambda top: top.name,
}
TRACE: Views = {
    name: lambda trace, name=name: trace.table(name).to_dicts()  # type: ignore[misc]
    for name in ("events", "edges", "communicators", "topology", "links", "claims", "ledger")
}
WORKLOAD: Views = {
    name: lambda job, name=name: getattr(job, name)  # type: ignore[misc]
    for name in (
        "name",
        "mesh",
        "classes",
        "tasks",
        "edges",
        "payloads",
        "resources",
        "micro_batches",
        "order",
        "policy",
        "assumptions",
    )
}
VIEWS = {"program": PROGRAM, "topology": TOPOLOGY, "trace": TRACE, "workload": WORKLOAD}


def examples(takes: str) -> Iterator[Any]:
    """Yield what an export of such things is tried on."""
    import random

    from ringwright.fabrics import fabric
    from ringwright.formats.sources import read
    from ringwright.formats.sources.sample import sample
    from ringwright_lab.contracts import small_jobs

    if takes in ("program", "collective"):
        made_programs = _programs()
        yield from made_programs if takes == "program" else (program.collective for program in made_programs)
    elif takes == "question":
        from ringwright.calls.simulation_spec import SimulationSpec

        yield from ((SimulationSpec(op, fabric("dgx-h100:1")), "nccl-2-4") for op in ("all-reduce", "all-gather"))
    elif takes == "topology":
        yield from (fabric("torus:2x2"), fabric("ring:4"), fabric("dgx-h100:1"))
    elif takes == "trace":
        yield read(str(sample()))
    elif takes == "workload":
        from ringwright.jobs.model_step import job

        draw = random.Random(1)  # noqa: S311 - a choice of tests
        yield from (small_jobs.layers(draw).job(4), small_jobs.experts(draw), job("gpt2", 2, "fsdp"))


def _programs() -> list[Program]:
    from ringwright.algorithms.blocks.binomial import binomial
    from ringwright.algorithms.blocks.ring import ring
    from ringwright.model.collective import Collective

    return [
        ring(Collective("all-reduce", range(4), 4096)),
        ring(Collective("all-gather", range(3), 3 * 400), channels=2),
        binomial(Collective("broadcast", range(5), 4000)),
    ]


def check_export(
    export: Export | Callable[..., Any],
    takes: str = "",
    *,
    read: Callable[[Path], Any] | None = None,
    loss: tuple[str, ...] = (),
    given: list[Any] | None = None,
) -> list[Outcome]:
    """Return the outcome of every check on an export of your own; ``failures`` of them lists what is lost.

    Checked is that the same thing gives the same bytes twice, and that what is read back is what was written.

    Parameters
    ----------
    export
        A function that returns bytes, or a file for each rank; of a Trace one that writes files and returns their paths.
    takes
        Of what it is: ``program``, ``collective``, ``topology``, ``trace`` or ``workload``.
    read
        A function that reads a file back, from its path; none: what ``READER`` beside the export names (``module:function``),
        else nothing is read back.
    loss
        What the format cannot hold: keys of ``ringwright_lab.contracts.export.VIEWS``; none: those of ``LOSS`` beside the export.
    given
        Things to write; none: small ones of the kind that it takes.

    Returns
    -------
    list of Outcome
        One for each thing.

    Examples
    --------
    >>> from ringwright.formats.exports.topology_json import topology_json
    >>> from ringwright_lab.testing import check_export, failures
    >>> failures(check_export(topology_json, "topology"))
    []
    """
    if not isinstance(export, Export):
        module, name = export.__module__, export.__name__
        export = Export(name.replace("_", "-"), takes, module, name)
    write = export.load()
    loss, read = loss or beside(write, "LOSS"), read or _reader(write)
    things = examples(export.takes) if given is None else iter(given)
    return [_examine(export, number, thing, read, loss) for number, thing in enumerate(things)]


def _reader(write: Callable[..., Any]) -> Callable[[Path], Any] | None:
    home = sys.modules[inspect.unwrap(write).__module__]
    where = getattr(write, "READER", getattr(home, "READER", ""))
    module, _, name = where.partition(":")
    return getattr(import_module(module), name) if where else None


def _examine(
    export: Export, number: int, thing: Any, read: Callable[[Path], Any] | None, loss: tuple[str, ...]
) -> Outcome:
    outcome = Outcome(TriedInput(export.name, f"{export.takes} {number}: {_named(thing)}"))
    with tempfile.TemporaryDirectory(prefix="ringwright-") as folder:
        first, why = made(lambda: _written(export, thing, Path(folder) / "one"))
        if first is None:
            is_open = why.startswith((DECLINED, "raised "))
            outcome.note("written", why if is_open else f"{DECLINED}{why}")
            return outcome
        outcome.run("written", lambda: _is_something(first))
        outcome.run("same-again", lambda: _differs(first, _written(export, thing, Path(folder) / "two")))
        strange = [name for name in loss if name not in VIEWS.get(export.takes, {})]
        if strange:
            outcome.failed["loss"] = f"'{strange[0]}' is not of a {export.takes}: {', '.join(VIEWS[export.takes])}"
        elif read is None or export.takes not in VIEWS:
            outcome.note("round-trip", f"{DECLINED}nothing here reads it back (no READER beside it)")
        else:
            outcome.run("round-trip", lambda: _lost(export, thing, _again(read, thing, Path(folder) / "one"), loss))
    return outcome


def _named(thing: Any) -> str:
    return str(getattr(thing, "name", getattr(thing, "op", type(thing).__name__)))


def _written(export: Export, thing: Any, folder: Path) -> dict[str, bytes]:
    """Write into a folder and return every file by its name there."""
    folder.mkdir()
    if export.takes == "trace":
        export.write(thing, folder / "trace")
    else:
        written = (
            export.files(*thing) if isinstance(thing, tuple) else export.files(thing)
        )  # a question and its answers
        if not all(isinstance(data, bytes) for data in (written.values() if isinstance(written, dict) else written)):
            raise TypeError("it returned no bytes and no list of them")
        for key, data in written.items() if isinstance(written, dict) else enumerate(written):
            (folder / f"{key}.{export.name}").write_bytes(data)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _is_something(files: dict[str, bytes]) -> str | None:
    empty = [name for name, data in files.items() if not data]
    return f"{empty[0]} is empty" if empty else None if files else "no file is written"


def _differs(one: dict[str, bytes], two: dict[str, bytes]) -> str | None:
    strange = [name for name in one if one[name] != two.get(name)]
    return f"{strange[0]} differs from one time to the next" if strange else None


def _again(read: Callable[..., Any], thing: Any, folder: Path) -> Any:
    files = list(folder.iterdir())
    more: dict[str, Any] = {}
    collective = getattr(thing, "collective", None)
    if collective is not None and "size_bytes" in inspect.signature(read).parameters:
        more = {"size_bytes": collective.size_bytes}  # which a program's file does not hold
    return read(files[0], **more)


def _lost(export: Export, thing: Any, again: Any, loss: tuple[str, ...]) -> str | None:
    for name, view in VIEWS[export.takes].items():
        if name in loss:
            continue
        before, after = view(thing), view(again)
        if before != after:
            return f"{name}: written {_brief(before)}, read back {_brief(after)}; LOSS beside it names what a format cannot hold"
    return None


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) < 90 else text[:87] + "..."
