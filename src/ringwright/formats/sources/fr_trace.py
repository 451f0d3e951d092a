"""What PyTorch's analyser of Flight Recorder dumps prints: calls of a group at which its ranks do not agree, or some are missing.

It compares every rank with the first, and calls all that differ from it culprits. So what each rank asked for is kept, and who is
in the minority is judged where watchdogs are. Of all calls listed one decides: the first at which a rank is missing or asks for
something else; ranks that only began later than others are no cause. Source: ``torch/distributed/flight_recorder``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.formats.sources.flight_recorder.names import role
from ringwright.formats.sources.launchers import plain
from ringwright.formats.sources.members import Member
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "fr-trace"
LONGEST_LINE = 1 << 20
MOST_RANKS = 1 << 16  # of one call
_BEGINS = re.compile(
    r"(?P<what>Not all ranks joining collective|Collective|Input/output mismatch in the collective)"
    r"(?:,? sequence number)?:? (?P<sequence>\d{1,18})(?: at entry \d+)?(?: has errors)?\s*$"
)
_FIELD = re.compile(
    r"^\s*(?P<name>group info|collective|missing ranks|input sizes|expected ranks|error msg): (?P<value>.*)$"
)
_CULPRIT = re.compile(r"Culprit rank (?P<rank>\d{1,7}); Error type: (?P<type>\w+)(?P<detail>.*?)(?=, Culprit rank|$)")
_DIFFERS = re.compile(r"Expected [\w ]+: '(?P<expected>.*?)' does not match found [\w ]+: '(?P<given>.*)'")
_NO_DUMP = re.compile(
    r"Missing dump files from ranks \{(?P<a>[\d, ]+)\}|missed FR dumps from ranks \(\{(?P<b>[\d, ]+)\}\)"
)
_NOTHING = "No errors found for this collective entry"
_BEGUN_LATER = ("COLLECTIVE_STATE_MISMATCH", "UNDECIDED")


@dataclass
class DisputedCall:
    """A call of a group that its ranks do not agree in, by the lines of its block."""

    sequence: int
    line: int
    text: str
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The group, as it is printed."""
        return self.fields.get("group info", "")

    @property
    def op(self) -> str:
        """The operation that the first rank asked for."""
        return self.fields.get("collective", "unknown").rpartition(":")[2].strip()

    @property
    def missing(self) -> set[int]:
        """The ranks that did not come to it."""
        return _ranks(self.fields.get("missing ranks", ""))

    @property
    def expected(self) -> set[int]:
        """The ranks of the group."""
        return _ranks(self.fields.get("expected ranks", ""))

    def differing(self) -> dict[int, tuple[str, str, str]]:
        """Return of each rank that differs from the first the kind of difference, what that asked for, and what it did."""
        told = {}
        for match in _CULPRIT.finditer(self.fields.get("error msg", "")):
            values = _DIFFERS.search(match["detail"])
            asked = (values["expected"], values["given"]) if values else ("", match["detail"].strip(" ,"))
            told[int(match["rank"])] = (match["type"], *asked)
        return told

    @property
    def decides(self) -> bool:
        """Whether a rank is missing or asks for something else; not where it only began later."""
        kinds = {kind for kind, *_ in self.differing().values()}
        return bool(self.missing or kinds - {*_BEGUN_LATER})


def _ranks(text: str) -> set[int]:
    return {int(each) for each in re.findall(r"\d{1,7}", text)[:MOST_RANKS]}


def read_fr_trace(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return what each rank did at the call that decides; InputError where such text holds no call and no word of its end."""
    gathered = Gathered(KIND)
    worlds: set[int] = set()
    for member in gathered.members(sources, progress):
        gathered.inputs.append(member.name)
        calls = _calls(gathered, member)
        for what, count in Counter(call.text.partition(":")[0].rstrip(" 0123456789") for call in calls).items():
            gathered.claim("calls listed", f"{count}: {what}", member.name)
        first = next((call for call in calls if call.decides), None)
        if first is None:
            continue
        _emit(gathered, member.name, first)
        worlds |= {len(first.expected)} if "default_pg" in first.group else set()
    if not gathered.claims:
        raise InputError(
            "no call and no conclusion of PyTorch's analyser of Flight Recorder dumps",
            where=", ".join(source.name for source in sources[:3]),
            remedy="give all that torchfrtrace printed, or the dumps themselves: ringwright summary DUMPS/",
        )
    return gathered.trace(
        world=max(worlds, default=None),
        limits=["the calls that agreed, and when they were made: the analyser does not print them"],
    )


def _calls(gathered: Gathered, member: Member) -> list[DisputedCall]:
    calls: list[DisputedCall] = []
    number = 0
    while data := member.stream.readline(LONGEST_LINE):
        number += 1
        text = plain(data.decode("utf-8", "replace").rstrip("\r\n"))
        begins, said, gone = _BEGINS.search(text), _FIELD.match(text), _NO_DUMP.search(text)
        if begins:
            calls.append(DisputedCall(int(begins["sequence"]), number, text.strip()[:400]))
        elif said and calls:
            calls[-1].fields.setdefault(said["name"], said["value"])
        elif gone:
            ranks = ", ".join(map(str, sorted(_ranks(gone["a"] or gone["b"]))))
            gathered.claim("ranks without a dump", ranks, member.name)
            gathered.lose(f"{member.name}: the analyser had no dump of ranks {ranks}")
        elif _NOTHING in text:
            gathered.claim("calls without a difference", "some, though time ran out in them", member.name)
        is_known = bool(begins or (said and calls) or gone or _NOTHING in text)
        gathered.note(member.name, "understood" if is_known else "other", "lines" if is_known else "of no call")
    return calls


def _emit(gathered: Gathered, file: str, call: DisputedCall) -> None:
    """Write where each rank of the group stands at a call, in the form in which watchdogs are told."""
    differing, missing = call.differing(), call.missing
    known = call.expected | missing | set(differing)
    description = call.group.partition(":")[2]
    stated = role(description) if description else None
    evidence = f"its description is {description}" if stated else None
    number = gathered.communicator(
        call.group, name=call.group, members=sorted(known), role=stated, role_evidence=evidence
    )
    for rank in sorted(known):
        gathered.device(rank)
        gathered.of(number)["ranks"].add(rank)
        came = rank not in missing
        if missing:
            done = call.sequence - 1
            far = {
                "pg": call.group,
                "at": call.sequence,
                "enqueued": call.sequence if came else done,
                "completed": done,
            }
            _row(gathered, file, call, number, rank, "progress", far, "came" if came else "did not come")
        if came:
            op, size = _asked(call, differing, rank)
            data = {"pg": call.group, "seq": call.sequence, "op": op, "nin": size, "nout": size}
            _row(gathered, file, call, number, rank, "watchdog", data, f"{op} {size}")


def _asked(call: DisputedCall, differing: dict[int, tuple[str, str, str]], rank: int) -> tuple[str, str]:
    """Return the operation and the sizes or type that a rank asked for; of one that does not differ those of the first rank."""
    kind, expected, _ = next(iter(differing.values()), ("", "", ""))
    kind, mine = (differing[rank][0], differing[rank][2]) if rank in differing else (kind, expected)
    size = call.fields.get("input sizes", "")
    if kind == "COLLECTIVE_TYPE_MISMATCH":
        return mine or call.op, size
    if kind == "COLLECTIVE_DTYPE_MISMATCH":
        # of one that differs three types are printed: what the first rank gets, what this one gives, and what it gets
        return call.op, mine.split("/")[min(mine.count("/"), 1)].strip("{}'")
    return call.op, mine if kind == "SIZE_OR_SYNTAX_MISMATCH" else size


def _row(
    gathered: Gathered,
    file: str,
    call: DisputedCall,
    number: int,
    rank: int,
    op: str,
    data: Mapping[str, object],
    said: str,
) -> None:
    gathered.events.add(
        kind="error",
        op=op,
        rank=rank,
        communicator=number,
        text=f"{call.text.removesuffix(' has errors')}, rank {rank}: {said}",
        task=json.dumps(data, sort_keys=True),
        file=file,
        line=call.line,
    )
