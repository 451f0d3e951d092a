"""``ringwright synthesise``: the best program for a collective on a machine, and the proof how good it is."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options, progress, reading
from ringwright.cli.fabrics import MachineOptions, group
from ringwright.cli.groups import GroupOptions, plan_together
from ringwright.cli.sizes import Sizes
from ringwright.ground import drafts
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.executors.fan_out import WorkAccount
    from ringwright.search.study import Synthesised


@Parameter(name="*", group=options.LIMITS)
@dataclass(frozen=True, kw_only=True)
class SearchLimits:
    """For how long is searched, and whether what was found before is taken."""

    budget: Annotated[
        str | None, Parameter(help="Time after which a search stops with the best so far, such as 10s.")
    ] = None
    fresh: Annotated[bool, Parameter(help="Search again, although the same was asked before.")] = False
    executor: options.Executor = None


@Parameter(name="*", group=options.OUTPUT)
@dataclass(frozen=True, kw_only=True)
class SynthesisResults:
    """What is shown of the programs that were found, and where they are written."""

    alone: Annotated[bool, Parameter(help="Leave out what all other algorithms take.")] = False
    to: Annotated[
        str | None,
        Parameter(
            help="Write the best program as msccl-xml, mscclpp-json, ... to --output; of several sizes one for each region "
            "of sizes."
        ),
    ] = None
    output: Annotated[
        options.Target,
        Parameter(help="The file of the program; of several sizes a folder, with what picks one by size."),
    ] = None
    html: Annotated[
        Path | None, Parameter(help="Write one HTML page: the machine, the trees, links over time, everyone else.")
    ] = None
    force: Annotated[options.Force, Parameter(help="Overwrite what is there.")] = False
    json: Annotated[options.Json, Parameter(help="Print one JSON object instead (schema ringwright.synthesise/1).")] = (
        False
    )

    def claim(self) -> None:
        """Raise UsageError where nothing says what to write, or the page is there already."""
        from ringwright.formats.exports.placement import claim_file

        if self.output is not None and self.to is None:
            raise UsageError(f"nothing says what to write to {self.output}", remedy=f"--to msccl-xml -o {self.output}")
        if self.html is not None:
            claim_file(self.html, force=self.force)

    def show(self, result: Synthesised, target: Path | None, machine: list[str], worked: WorkAccount) -> None:
        """Write the program and the page, and print the answer."""
        from ringwright.reports.calls import synthesised
        from ringwright.reports.pages import synthesised_page
        from ringwright.search import runtime_files as files
        from ringwright.search.best_run import seen

        written = files.write(result, str(self.to), target, force=self.force) if target is not None else None
        if self.html is not None:
            page = synthesised_page.synthesis_page(result, seen(result), reading.command_line(), machine)
            drafts.write(self.html, page)
        if self.json:
            reading.print_json({**result.document(), "executor": worked.document()})
            return
        synthesised.write(result, sys.stdout)
        if written is not None:
            synthesised.write_files(written, sys.stdout)
        if self.html is not None:
            print(f"wrote {self.html}; open it in a browser")


EVERYWHERE, ONE, UNGROUPED = MachineOptions(), Sizes(begin="1G"), GroupOptions()
UNLIMITED, SHOWN = SearchLimits(), SynthesisResults()


def synthesise(
    collective: Annotated[str, Parameter(group=options.QUESTION)],
    *,
    method: Annotated[str, Parameter(group=options.QUESTION)] = "usual",
    size: Annotated[str | None, Parameter(group=options.SIZES)] = None,
    sizes: Sizes = ONE,
    machine: MachineOptions = EVERYWHERE,
    groups: GroupOptions = UNGROUPED,
    root: Annotated[int, Parameter(group=options.QUESTION)] = 0,
    link_model: options.LinkModel = "pipelined",
    limits: SearchLimits = UNLIMITED,
    results: SynthesisResults = SHOWN,
) -> int:
    """Search for the fastest program of a collective on a machine: checked, timed, beside its bound and all other algorithms.

    Parameters
    ----------
    collective
        all-gather, reduce-scatter, all-reduce, broadcast, ...
    method
        How to search: forest, expand, sccl, taccl, blink, p2, flow-all-to-all, or several; usual: forest or flow-all-to-all, and
        expand where that is more than 1 % above the bound; best: all, and which algorithm is fastest at which size.
    size
        Bytes, the size column of nccl-tests (1G); -b, -e and -f for several.
    root
        Place of the root in the group.

    Examples
    --------
    ringwright synthesise all-gather --fabric dgx-a100:2 --size 1G
    ringwright synthesise all-reduce --fabric torus:3x3 --fault 'link rank0 rate 50%' --size 64M --alone
    ringwright synthesise all-reduce --fabric torus:2x4 --groups tp=2,dp=4 --beside 'all-reduce 64M on dp' --size 64M
    """
    from ringwright.algorithms.searching import stoppable
    from ringwright.executors.fan_out import fan_out
    from ringwright.ground.units import parse_time
    from ringwright.search import runtime_files as files
    from ringwright.search import study
    from ringwright.search.question import SynthesisSpec

    if size is not None and sizes != ONE:
        raise UsageError(
            "--size and --begin both say the size", remedy="-b, -e and -f for several sizes, --size for one"
        )
    results.claim()
    topology = machine.build()
    question = SynthesisSpec(
        collective,
        topology,
        group(machine.ranks, topology),
        root,
        budget_s=None if limits.budget is None else parse_time(limits.budget),
        link_model=link_model,
        seed=machine.seed,
        fresh=limits.fresh,
        healthy=replace(machine, fault=()).build() if machine.fault else None,
    )
    wanted = sizes.or_one(size, ONE).listed(collective)
    if calls := groups.calls(collective, wanted, question.collective(0).group):
        if results.to is not None or results.html is not None or method not in ("usual", "forest"):
            raise UsageError(
                "groups are planned together as forests, and not written", remedy="leave out --method, --to and --html"
            )
        return plan_together(question, calls, json=results.json)
    target = None if results.to is None else files.target(results.to, results.output, len(wanted))
    with stoppable(), fan_out(limits.executor) as fan, progress.steps("searching") as advance:
        result = study.synthesise(question, wanted, method, rivals=not results.alone, progress=advance, executor=fan)
    results.show(result, target, machine.words(), fan.account)
    return 0
