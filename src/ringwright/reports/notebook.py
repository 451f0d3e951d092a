"""Pictures that show themselves in a notebook: timelines, matrices, machines, loads, curves and steps, each in its own frame.

A picture is a whole page: it loads nothing, and runs no script but its own, inside a frame that cannot touch the notebook around
it. Outside a notebook ``save`` writes that page as a file.

Examples
--------
>>> import ringwright
>>> trace = ringwright.read(ringwright.sample())
>>> ringwright.pictures.matrix(trace)
Picture(Who sends to whom: nccl-log, 16 ranks)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.ground.notebook import line
from ringwright.model.trace import Trace
from ringwright.reports import cuts, html, tables
from ringwright.reports.completion import complete, no_timeline
from ringwright.reports.draw import machine_picture, ranks_picture
from ringwright.reports.draw import pictures as geometry
from ringwright.reports.draw.load_picture import load_picture
from ringwright.reports.pages import job_page
from ringwright.reports.terminal import ground_of

if TYPE_CHECKING:
    from ringwright.analysis.summary_view import SeenSummary
    from ringwright.calls import arguments
    from ringwright.engines.result import Run
    from ringwright.jobs.study import PolicyResult
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program

Recording = Trace | Mapping[str, object]
USUAL_SIZES = ("4K", "32K", "256K", "2M", "16M", "128M")
FULL_PAGE, HEAD, TALLEST = 900, 160, 1400  # pixels of a frame
WITHOUT_SIZES = "a curve needs two sizes and more"


@dataclass(frozen=True)
class Picture:
    """A picture in a notebook, and a page of its own elsewhere.

    Attributes
    ----------
    title
        What it shows, in a line.
    page
        The whole page, HTML that needs no network.
    height
        Pixels of the frame that a notebook gives it; what is higher is scrolled.
    """

    title: str
    page: str
    height: int

    def __repr__(self) -> str:
        return line(f"Picture({self.title})")

    def _repr_html_(self) -> str:
        """Return a frame that runs the page's own script and can neither reach the notebook nor be reached from it."""
        style = f"width:100%;height:{self.height}px;border:0"
        return (
            f'<iframe sandbox="allow-scripts" title="{escape(self.title)}" style="{style}" '
            f'srcdoc="{escape(self.page)}"></iframe>'
        )

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the page and return its path; raise UsageError where there is a file already and ``force`` is not given."""
        from ringwright.formats.exports.placement import claim_file
        from ringwright.ground import drafts

        return drafts.write(claim_file(Path(path), force=force), self.page)


def report(recording: Recording) -> Picture:
    """Return the whole report of a recording, as the verb ``report`` writes it.

    Parameters
    ----------
    recording
        A Trace, or what ``summary`` said of it.

    Returns
    -------
    Picture
        The page in a frame.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.pictures.report(ringwright.read(ringwright.sample()))
    Picture(Report: nccl-log, 16 ranks)
    """
    view = _summary(recording)
    return Picture(f"Report: {_name(recording, view)}", html.page(view), FULL_PAGE)


def timeline(what: Recording | PolicyResult) -> Picture:
    """Return the timeline of a recording, a row for each rank's calls and for its kernels, or of a simulated step.

    Parameters
    ----------
    what
        A Trace with times, what ``summary`` said of it, or the answer of ``simulate`` for a job.

    Returns
    -------
    Picture
        Of a recording it can be moved, zoomed, filtered and searched; pale is what waited for others.

    Raises
    ------
    UsageError
        The recording has no durations, or its ranks share no clock.

    Examples
    --------
    >>> import ringwright
    >>> step = ringwright.simulate(ringwright.job("vgg16", gpus=8), "dgx-h100:1", policy="p3")
    >>> ringwright.pictures.timeline(step)
    Picture(One step: vgg-16 training on dgx-h100:1, policy p3)
    """
    if not isinstance(what, Trace | Mapping):
        return _step(what)
    view = _summary(what)
    ranks = ranks_picture.picture(view)
    if ranks is None or ranks.refused:
        why = ranks.refused if ranks else "it holds calls without their durations"
        raise UsageError(
            f"no timeline can be drawn: {why}",
            where=_name(what, view),
            remedy=f"record with times: ringwright run -- COMMAND, or PyTorch's profiler. {no_timeline(view)}".strip(),
        )
    height = min(26 + 18 * len(ranks.rows), 640) + 340
    return _picture(f"Timeline: {_name(what, view)}", height, {"ranks": ranks}, data={"timeline": ranks})


def matrix(recording: Recording) -> Picture:
    """Return the bytes from each rank to each other, hosts parted by lines; of more ranks than can be drawn, by host.

    Parameters
    ----------
    recording
        A Trace, or what ``summary`` said of it.

    Returns
    -------
    Picture
        The matrix, and the largest pairs as a table.

    Raises
    ------
    UsageError
        No operation with known members was read.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.pictures.matrix(ringwright.read(ringwright.sample()))
    Picture(Who sends to whom: nccl-log, 16 ranks)
    """
    view = _summary(recording)
    made = cuts.matrix(view)
    if made is None:
        raise UsageError(
            "no byte matrix can be drawn: no operation with known members was read",
            where=_name(recording, view),
            remedy="ringwright doctor says what the recording lacks",
        )
    drawn = {"matrix": made, "pairs": tables.all_tables(view)["pairs"]}
    lead = f"Rows send, columns receive. Ground: {cuts.short(ground_of(view))}."
    return _picture(f"Who sends to whom: {_name(recording, view)}", 800, drawn, lead, data={"matrix": made})


def machine(on: arguments.Machine | Run) -> Picture:
    """Return a machine: ranks, NICs and switches, links as wide as they are fast and, of a run, coloured by their load.

    Parameters
    ----------
    on
        A Topology, ``dgx-h100:2``, a file that describes one, or a Run, whose machine is drawn as it carried the run.

    Returns
    -------
    Picture
        One picture, or two where hosts are folded to one node each: all of them, and the first by itself.

    Raises
    ------
    UsageError
        The machine has more nodes than a picture can show, or the run's engine knows no links.

    Examples
    --------
    >>> import ringwright
    >>> run = ringwright.simulate("all-reduce", "dgx-h100:2", algorithm="ring")
    >>> ringwright.pictures.machine(run)
    Picture(dgx-h100:2 under ring, all-reduce of 64 MiB over 16 ranks on dgx-h100:2)
    """
    from ringwright.calls import arguments
    from ringwright.engines.result import Run

    run = on if isinstance(on, Run) else None
    if run is not None and run.machine is None:
        raise UsageError(
            f"the {run.engine} engine follows no links", where=repr(run), remedy="simulate(..., engine='events')"
        )
    topology = (
        run.machine.topology
        if run is not None and run.machine is not None
        else arguments.machine(cast("arguments.Machine", on))
    )
    drawn, note = machine_picture.pictures(topology, run, ())
    if not drawn:
        raise UsageError(f"{topology.name} cannot be drawn: {note}", remedy="draw a smaller machine of its kind")
    title = topology.name if run is None else f"{topology.name} under {run.title}"
    lead = "A line is as wide as its links are fast; its colour says how busy they are" + (
        " over the whole run." if run is not None else ": nothing runs here."
    )
    height = sum(round(each["height"]) + 40 for each in drawn) + HEAD
    return _picture(title, height, {"machines": drawn}, lead, [f"{note}."] if note else [])


def load(
    what: Program | Collective | str,
    on: arguments.Machine,
    *,
    algorithm: str | None = None,
    size: int | str | None = None,
    faults: Iterable[str] = (),
) -> Picture:
    """Return how busy each link is over the time of one collective, the busiest first.

    Parameters
    ----------
    what, on, algorithm, size, faults
        As ``simulate`` takes them for one collective; every message stands for itself.

    Returns
    -------
    Picture
        A row for each link, or for links that are alike.

    Raises
    ------
    UsageError
        What is named does not exist or does not fit on the machine.
    InfeasibleError
        The messages are too many to follow one by one, or one never arrives.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.pictures.load("all-reduce", "dgx-h100:1", algorithm="ring", size="16M")
    Picture(Links over time: ring, all-reduce of 16 MiB on dgx-h100:1)
    """
    from ringwright.search.single_run import program_on, unfolded

    seen = unfolded(*program_on(what, on, algorithm=algorithm, size=size, faults=faults))
    made = load_picture(seen.run, seen.load())
    title = f"Links over time: {_program(seen.program)} on {seen.topology.name}"
    lead = (
        "Share of the time in which a link passes bytes; at the right over all of it. Links that are alike are one row."
    )
    notes = [f"What the time was spent on: {seen.run.path()}.", *([f"{made['note']}."] if made["note"] else [])]
    return _picture(title, round(made["height"]) + HEAD + 80, {"load": made}, lead, notes)


def curves(
    what: str,
    on: arguments.Machine,
    *,
    algorithms: Sequence[str] = (),
    sizes: Sequence[int | str] = USUAL_SIZES,
    faults: Iterable[str] = (),
) -> Picture:
    """Return the time of a collective over its size, a line for each algorithm, beside the bound of physics.

    Parameters
    ----------
    what
        The operation, over all ranks of the machine.
    on
        The machine, as ``simulate`` takes it.
    algorithms
        Spellings such as ``ring`` or ``blueconnect:factors=8x2``; the usual one where none is given.
    sizes
        Bytes, or ``64M`` (binary): the size column of nccl-tests. Two and more.
    faults
        Lines such as ``nic node0/nic0 rate 50%``.

    Returns
    -------
    Picture
        Both axes logarithmic; bands are 90 % intervals.

    Raises
    ------
    UsageError
        What is named does not exist or does not fit on the machine, or there are not two sizes.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.pictures.curves("all-reduce", "dgx-h100:1", algorithms=["ring", "nvls-tree"], sizes=["1M", "64M"])
    Picture(Time over size: all-reduce on dgx-h100:1)
    """
    from ringwright.calls import arguments, simulate
    from ringwright.calls.asked_faults import AskedFaults
    from ringwright.calls.library_calls import usual_algorithm
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.reports.calls.simulated import declined, ended

    if isinstance(algorithms, str) or isinstance(sizes, str):
        raise UsageError("algorithms and sizes are lists", remedy="algorithms=['ring'], sizes=['1M', '64M']")
    lines = (faults,) if isinstance(faults, str) else tuple(faults)
    healthy = arguments.machine(on)
    asked = AskedFaults(lines, 0) if lines else None
    topology = healthy if asked is None else asked.on(healthy)
    question = SimulationSpec(what, topology, healthy=healthy, faults=asked)
    names = list(algorithms) or [usual_algorithm(arguments.collective(what, topology), topology, None)]
    result = simulate.swept(question, names, sorted({arguments.bytes_of(size) for size in sizes}))
    if not result.answered:
        raise InfeasibleError(ended(result)[0], remedy="a shorter outage")
    drawn = geometry.curves(result.answered)
    if drawn is None:
        raise UsageError(WITHOUT_SIZES, where=f"sizes={list(sizes)}", remedy="sizes=['1M', '64M']")
    notes = [*(f"{name} declined: {why}" for name, why, _ in declined(result)), *ended(result)]
    return _picture(f"Time over size: {what} on {topology.name}", 620, {"curves": drawn}, notes=notes)


def steps(program: Program) -> Picture:
    """Return who sends to whom in each step of a program, ranks from top to bottom.

    Parameters
    ----------
    program
        A Program, of an algorithm or of a file.

    Returns
    -------
    Picture
        A line for each message; those whose bytes are added on arrival in another colour.

    Raises
    ------
    UsageError
        The program has too many ranks or messages, or no step.

    Examples
    --------
    >>> import ringwright
    >>> reduced = ringwright.Collective("all-reduce", range(8), 1 << 20)
    >>> ringwright.pictures.steps(ringwright.algorithm("ring")(reduced, ringwright.fabric("switch:8")))
    Picture(Steps: ring, all-reduce of 1 MiB)
    """
    drawn = geometry.steps(program)
    if drawn is None:
        raise UsageError(
            f"{program.name} cannot be drawn step by step: too many ranks or messages, or no step",
            remedy=f"draw it over {geometry.MOST_RANKS} ranks or fewer",
        )
    cut = [f"The first {drawn.shown} of {drawn.steps} steps."] if drawn.shown < drawn.steps else []
    lead = "Ranks from top to bottom, steps from left to right."
    return _picture(f"Steps: {_program(program)}", round(drawn.height) + HEAD + 60, {"steps": drawn}, lead, cut)


def _step(result: PolicyResult) -> Picture:
    from ringwright.jobs.explained.tracks import tracks

    timed = tracks(result.run)
    made = job_page.timeline(f"policy {result.policy}", f"{result.step_s * 1e3:,.1f} ms", timed, timed.span_s)
    on = f" on {result.fabric}" if result.fabric else ""
    drawn = {"step": made, "legend": job_page.timeline_legend([timed])}
    lead = "One rank of each kind: what it computed above what was on its wires."
    return _picture(
        f"One step: {result.workload.name}{on}, policy {result.policy}", made.height + HEAD + 80, drawn, lead
    )


def _picture(
    title: str,
    height: int,
    drawn: Mapping[str, object],
    lead: str = "",
    notes: Sequence[str] = (),
    *,
    data: Mapping[str, object] | None = None,
) -> Picture:
    kinds = ("ranks", "step", "legend", "matrix", "pairs", "curves", "machines", "load", "steps")
    page = html.inline(
        cuts.short(title, 200),
        lead,
        dict.fromkeys(kinds) | dict(drawn),
        [cuts.short(note, 600) for note in notes],
        data or {},
    )
    return Picture(cuts.short(title, 200), page, min(height, TALLEST))


def _summary(recording: Recording) -> SeenSummary:
    from ringwright.analysis.summary import summarise

    return complete(summarise(recording) if isinstance(recording, Trace) else recording)


def _name(recording: Recording, view: SeenSummary) -> str:
    if isinstance(recording, Trace):
        return repr(recording).removeprefix("Trace(").removesuffix(")")
    return f"{view.kind or 'recording'}, {view.ranks_seen:,} ranks"


def _program(program: Program) -> str:
    collective = program.collective
    from ringwright.ground.units import format_size

    return f"{program.name}, {collective.op} of {format_size(collective.size_bytes)}"
