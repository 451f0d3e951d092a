"""What it takes to compile a script of the language: a table of CPU seconds, beside what the public compiler took.

    python benchmarks/synthesis_gc3.py              # the programs of the card, and a ring of 512 ranks
    python benchmarks/synthesis_gc3.py --ranks 64   # the largest ring

*Compiled* is from the first line of the script to the thread blocks, *proved* the proof of order, races and result on top,
*written* the MSCCL XML. The public compiler (MSCCLang, msccl-tools 030a750f) does the first and the last; its seconds are user
CPU of the whole process on one core of another machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from ringwright.algorithms.language import ChunkScript, compile_script
from ringwright.algorithms.language.compiling import scheduled_script
from ringwright.algorithms.synthesis.gc3 import _DOES, _chunks
from ringwright.algorithms.synthesis.gc3.programs import Plan
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.ground.errors import ProgramError
from ringwright.model.collective import Collective
from ringwright.model.threadblocks.msccl import DEPTH
from ringwright.model.validity import check

# program, operation, ranks, ranks of a node, channels, instances; seconds and steps of the public compiler
CASES = (
    ("ring", "all-reduce", 8, 8, 4, 8, 0.22, 960),
    ("all-pairs", "all-reduce", 8, 8, 1, 4, 0.42, 5344),
    ("hierarchical", "all-reduce", 16, 8, 1, 1, 0.18, 544),
    ("three-step", "all-to-all", 32, 8, 1, 1, 0.35, 2208),
    ("ring", "all-reduce", 64, 64, 1, 1, 3.36, 8128),
)
PROVED_UP_TO = 100  # ranks


def seconds(action: Callable[[], object]) -> tuple[float, object]:
    """Return CPU seconds and what came out."""
    begin = time.process_time()
    made = action()
    return time.process_time() - begin, made


def measure(name: str, op: str, p: int, node: int, channels: int, instances: int) -> tuple[int, list[float | None]]:
    """Return steps, and the seconds to compile, to prove and to write; None where a step is left out."""
    collective = Collective(op, range(p), 1 << 22)
    plan = Plan(node, channels)

    def traced() -> ChunkScript:
        script = ChunkScript(collective, chunks=_chunks(name, collective, plan))
        _DOES[name][op](script, plan)
        return script

    options = {"instances": instances, "interleaved": False, "depth": DEPTH["Simple"], "fuse": True}
    compiled_s, made = seconds(lambda: scheduled_script(traced(), **options))  # type: ignore[arg-type]
    steps = len(made.code)  # type: ignore[attr-defined]
    if p > PROVED_UP_TO:
        return steps, [compiled_s, None, None]
    program = compile_script(traced(), instances=instances, checked=False)
    proved_s, violations = seconds(lambda: check(program))
    assert violations == []
    try:
        written_s, _ = seconds(lambda: msccl_xml(program))
    except ProgramError:
        return steps, [compiled_s, proved_s, None]
    return steps, [compiled_s, proved_s, written_s]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=512, help="of the largest ring")
    asked = parser.parse_args()
    head = ("program", "ranks", "steps", "compiled s", "proved s", "written s", "public s", "public steps")
    print("".join(f"{each:>14}" for each in head))
    cases = [*CASES, ("ring", "all-reduce", asked.ranks, asked.ranks, 1, 1, None, None)]
    for *what, public_s, public_steps in cases:
        steps, times = measure(*what)  # type: ignore[arg-type]
        row = [what[0], what[2], f"{steps:,}", *times, public_s, public_steps]
        print(
            "".join(
                f"{'-' if each is None else f'{each:.3f}' if isinstance(each, float) else each:>14}" for each in row
            )
        )


if __name__ == "__main__":
    main()
