"""Algorithms of a benchmark that a switch carries out, and the switches that stand while it runs."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ringwright import drafts
from ringwright.errors import UsageError
from ringwright.execute import launch
from ringwright.execute.place import Place
from ringwright.execute.switched import runner
from ringwright.execute.switched.serving import PORT, read_key
from ringwright.execute.switched.started import AskedSwitch, started
from ringwright.execute.switched.terms import SwitchTerms, WorkerPort, is_switched, read_terms
from ringwright.execute.switched.tree import seats

if TYPE_CHECKING:
    from ringwright.lab import LabNetwork
    from ringwright.studies.bench.question import BenchSpec

WIRE = "switch"


def switched(question: BenchSpec) -> dict[str, SwitchTerms]:
    """Return the spellings of a question that go through a switch, each a job of its own; UsageError where one cannot."""
    spelled = [each for each in dict.fromkeys(question.algorithms) if is_switched(each)]
    reason = runner.declines(question.op, question.reduce_op, question.dtype) if spelled else ""
    if reason:
        raise UsageError(reason, where=spelled[0], remedy="bench all-reduce --dtype float32")
    return {
        each: msgspec.structs.replace(read_terms(each, question.ranks), job=job) for job, each in enumerate(spelled)
    }


@contextlib.contextmanager
def serving(question: BenchSpec, net: LabNetwork | None) -> Iterator[list[WorkerPort]]:
    """Have switches run, in the lab's switches or one on this machine, and give each rank's port. Nothing where none is asked."""
    asked = question.through_switch
    if not asked:
        yield []
        return
    if net is not None:
        above, ranks = seats(net.topology)
        at = {each.rank: each for each in net.switches}
    else:
        from ringwright.fabrics import fabric

        above, ranks = seats(fabric(f"switch:{question.ranks}"))
        at = {above[0].node: Place(above[0].node)}
    slots = max(each.slots for each in asked.values()) * len(asked)
    loss = max(each.loss for each in asked.values())
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(launch.job_folder(elsewhere=True))
        key = folder / "key"
        drafts.write(key, secrets.token_hex(32))  # the folder is ours alone
        heard: dict[int, tuple[str, int]] = {}
        for seat in above:
            one = AskedSwitch(
                f"{at[seat.node].address}:{PORT if net else 0}",
                seat.workers,
                slots,
                key,
                len(asked),
                loss,
                heard.get(seat.parent),
                seat.branch,
            )
            heard[seat.node] = stack.enter_context(started(one, at[seat.node].command)).address
        session = secrets.randbits(63)
        yield [WorkerPort(*heard[rank.node], rank.number, read_key(key), session) for rank in ranks]
