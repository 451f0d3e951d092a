"""A simulated collective as the command line shows it: a table, a page, a Trace."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.cli import options, progress, reading
from ringwright.cli.sizes import Sizes
from ringwright.ground.documents import as_json
from ringwright.ground.errors import EXIT_INFEASIBLE, UsageError

OF_A_MAP, NOBODY = Sizes(begin="4", end="1G", factor=4), Sizes()

if TYPE_CHECKING:
    from ringwright.calls.simulated_document import SimulatedCalls
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.cli.jobs import Results


def show(
    question: SimulationSpec, algorithms: str, wanted: list[int], results: Results, executor: str | None = None
) -> int:
    """Print a row per algorithm and size; write the page and save the first algorithm's largest run where asked for.

    Bursts are those of the first algorithm at the largest size.
    """
    from ringwright.calls import simulate as study
    from ringwright.calls.detail import detail

    gap_s = options.gap_seconds(results.gap)
    names = algorithms.split(",")
    with progress.steps("simulating") as advance:
        result = study.swept(question, names, wanted, advance, executor=executor)
    if not result.answered:
        return _ends(result, json=results.json)
    question = study.laid_out(question, result)
    if results.trace:
        from ringwright.calls.run_trace import trace as traced

        first = detail(question, names[0], wanted[-1], whole=True)
        run = traced(first.program, question.topology, first.run, question.asked(names[:1]))
        reading.save_run(run, results.trace, force=results.force)
    told_bursts = None
    if results.holds_bursts:
        from ringwright.calls.simulated_bursts import burst_answer

        told_bursts = burst_answer(question, result.answered, gap_s)
    if results.json:
        reading.print_json(result.document() | as_json(told_bursts))
        return 0
    from ringwright.calls import message_playback
    from ringwright.reports.calls import simulated
    from ringwright.reports.pages import simulated_page

    simulated.write(result, sys.stdout, bursts_told=told_bursts if results.bursts else None)
    if results.output:
        ran = {row.algorithm for row in result.answered if row.size_bytes == wanted[-1]}
        details = [detail(question, name, wanted[-1]) for name in names if name in ran]
        seen = message_playback.all_followed(question, details)
        page = simulated_page.page(result, details, reading.command_line(), seen, told_bursts)
        reading.write_page(results.output, page, force=results.force)
    return 0


def _ends(result: SimulatedCalls, *, json: bool) -> int:
    """Show an answer without any time: how the job ends; there is nothing to draw or to save."""
    if json:
        reading.print_json({**result.document(), "bursts": None, "bursts_unknown": "the job ends"})
    else:
        from ringwright.reports.calls import simulated

        simulated.write(result, sys.stdout)
    return EXIT_INFEASIBLE


def sizes_of_a_map(given: Sizes, nothing: Sizes) -> Sizes:
    """Return the sizes of a map of winners: as given, or 4 B to 1 GiB where neither end is; ``nothing``: what nobody typed."""
    if given == nothing:
        return OF_A_MAP
    left_out = given.end is None and replace(given, factor=NOBODY.factor, step=None) == NOBODY != given
    return replace(given, begin=OF_A_MAP.begin, end=OF_A_MAP.end) if left_out else given


def show_winners(
    question: SimulationSpec, algorithms: str | None, wanted: list[int], results: Results, executor: str | None = None
) -> int:
    """Print who wins among how many ranks at which size; a map has no place for a page, a Trace or bursts."""
    from ringwright.calls import winners as study

    given = {"--output": results.output is not None, "--trace": results.trace is not None, "--bursts": results.bursts}
    if needless := [option for option, is_given in given.items() if is_given]:
        raise UsageError(f"{needless[0]} is of one group of ranks, --winners of many", remedy="one without the other")
    with progress.steps("simulating") as advance:
        names = algorithms.split(",") if algorithms else None
        result = study.winners(question, names, wanted, advance, executor=executor)
    if results.json:
        reading.print_json(as_json(result))
        return 0
    from ringwright.reports.calls import winners

    winners.write(result, sys.stdout)
    return 0
