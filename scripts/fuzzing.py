"""What the campaigns of damaged input share: inputs of every kind, ways to damage them, and a watch over time and memory.

Everything is drawn from a seed and a number, so that one command makes one input again.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import html
import io
import json
import random
import re
import signal
import sys
import tarfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if find_spec("polars") is None:  # or every input would fail, for a reason that is not its own
    sys.exit("these campaigns need the project's environment: scripts/ringwright makes it, then . .venv/bin/activate")

from message_damage import message_damage
from profiler_recording import recording, sealed_damage

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from ringwright_lab.testing import campaigns  # noqa: E402

BLOCK = 20  # inputs of a task
LIMIT_S = 30.0  # of processor time, for one input
MEMORY_BYTES = 1 << 30  # more than before, for one input
SMALL_BYTES = 64 << 10
LARGE_BYTES = 10 << 20
NUMBERS = (
    b"0",
    b"-1",
    b"1e308",
    b"-1e-308",
    b"NaN",
    b"2147483647",
    b"2147483648",
    b"-2147483649",
    b"4294967296",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"1" + b"0" * 400,
    b"null",
    b"true",
    b'"x"',
    b"[]",
    b"{}",
    b"0.5",
    b"",
)
STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**32,
    2**63,
    1 << 80,
    -(2**63),
    1e308,
    -1e308,
    0.5,
    "",
    "\ud800",
    "9" * 40,
    "NaN",
    [],
    {},
    [[[[]]]],
    {"ranks": "x"},
    [None, 1],
    "<script>",
    "\x1b[2J",
    "x" * 5000,
    "=1+1",
    [2**31] * 3,
    {"": {}},
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Base:
    """A recording that is whole, and the kind that it is of."""

    kind: str
    name: str
    data: bytes


# ------------------------------------------------------------------------------------------------ whole recordings
def bases(folder: Path | None) -> dict[str, list[Base]]:
    """Return small whole recordings by kind: those below ``folder``, and ones of our own for kinds that nobody publishes."""
    found: dict[str, list[Base]] = {}
    for name, data in [*(_published(folder) if folder else ()), *_own()]:
        kind = _kind(name, data)
        if kind is not None and data:
            found.setdefault(kind, []).append(Base(kind, name, data))
    return dict(sorted(found.items()))


def _kind(name: str, data: bytes) -> str | None:
    from ringwright.formats.sources.detect import kind_of

    return kind_of(data[: 256 << 10], name)


def _published(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith("SOURCES"):
            continue
        for name, data in _members(path):
            yield name, small(data)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a file: itself, or the first of an archive."""
    with contextlib.suppress(OSError, EOFError, tarfile.TarError):
        if path.name.endswith((".tar.gz", ".tgz", ".tar")):
            with tarfile.open(path) as archive:
                members = [member for member in archive.getmembers() if member.isreg()][:4]
                for member in members:
                    stream = archive.extractfile(member)
                    if stream is not None:
                        yield Path(member.name).name, stream.read(LARGE_BYTES)
            return
        data = path.read_bytes()
        yield path.name.removesuffix(".gz"), gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def small(data: bytes, most: int = SMALL_BYTES * 3 // 4) -> bytes:
    """Return a recording of at most ``most`` bytes: JSON with shorter lists, other text by whole lines, bytes as they come."""
    if len(data) <= most:
        return data
    if data.lstrip()[:1] in (b"{", b"["):
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(data)
            for longest in (400, 150, 60, 25, 10, 4):
                short = json.dumps(_shorter(document, longest)).encode("utf-8", "surrogatepass")
                if len(short) <= most:
                    return short
    cut = data[:most]
    return cut[: cut.rfind(b"\n") + 1] or cut


def _shorter(value: Any, longest: int) -> Any:
    if isinstance(value, dict):
        return {key: _shorter(each, longest) for key, each in list(value.items())[: 10 * longest]}
    return [_shorter(each, longest) for each in value[:longest]] if isinstance(value, list) else value


def _own() -> Iterator[tuple[str, bytes]]:
    """Yield recordings made here: a recorded job's files, a database, a log."""
    import tempfile

    from nsys_export import write, write_payloads
    from ringwright_lab.testing import training_job, write_log

    head = {"host": "n1", "pid": 7, "rank": 0, "world": 2, "wall_ns": 10**18, "clock_ns": 10**9}
    calls: list[Any] = [
        {"ringwright": "calls/1", "source": "torch-hook", **head, "library": "torch 2.13.0", "program": "train.py"},
        ["g", 0, "0", "default_pg", "gloo", 2, 0, [0, 1]],
        ["g", 1, "1", "mesh_tp", "nccl", 2, 0, {"first": 0, "step": 1, "count": 2}],
        ["c", 0, None, "forward", "layers.0", 64],
    ]
    for number in range(60):
        at_ns = 10**9 + 1000 * number
        op = ("all-reduce", "all-gather", "send", "recv", "barrier")[number % 5]
        calls.append(["b", number, at_ns, number % 2, op, "float32", 4, 16, 16, None, 1, "sum", 0, 0, 1, number])
        calls.append(["e", number, at_ns + 500])
        if number % 20 == 19:
            calls += [["s", number // 20, at_ns - 900, at_ns], ["r", number, at_ns, "broken"], ["d", "disk full", 3]]
    yield "calls.n1.7.jsonl", _lines([*calls, ["x", "exit", 10**9 + 10**6]])
    counters = [
        [10**9 + 10**6 * k, {"eth0.rx_bytes": 1000 * k, "tcp.RetransSegs": k, "ib0.port_xmit_data": k}]
        for k in range(50)
    ]
    yield "network.n1.7.jsonl", _lines([{"ringwright": "network/1", **head}, *counters])
    run = {
        "ringwright": "run/1",
        **head,
        "python": "3.11.7",
        "command": ["torchrun", "train.py"],
        "job": "12.0",
        "ringwright_version": "1",
        "sources": {"calls": "PyTorch"},
        "kept": ["NCCL_DEBUG"],
        "started_ns": 10**18,
        "ended_ns": 10**18 + 10**9,
        "exit_code": 1,
        "signal": 9,
        "is_late": False,
    }
    yield "run.n1.7.json", json.dumps(run, indent=1).encode()
    yield "job-n1-7.rwprof", recording()
    for path in sorted((ROOT / "tests" / "sources" / "xla").glob("*.xplane.pb.gz")):
        yield path.name.removesuffix(".gz"), gzip.decompress(path.read_bytes())
    for folder in ("deepspeed", "torchcomms", "rccl", "megatron", "tracelens"):
        for path in sorted((ROOT / "tests" / "sources" / folder).glob("*.[clj]*")):
            yield path.name, path.read_bytes()
    with tempfile.TemporaryDirectory() as scratch:
        yield "rank0.sqlite", write(Path(scratch) / "a.sqlite").read_bytes()
        yield "rank1.sqlite", write_payloads(Path(scratch) / "b.sqlite").read_bytes()
    job = training_job(1, 4, tp=2, iterations=1, buckets=None, layers=1, tokens=16, hidden=64)
    for release, options in (
        ("2.3", {}),
        ("2.18", {"rccl": True}),
        ("2.27", {"timestamps": True}),
        ("2.30", {"symmetric": True}),
    ):
        older = release == "2.3"
        log = write_log(
            training_job(1, 4, iterations=1, buckets=None, layers=1, tokens=16, hidden=64) if older else job,
            release,
            **options,
        )
        yield f"job-{release}.log", small(log.text)


def _lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


# --------------------------------------------------------------------------------------------------- the damage
def hurt(base: Base, draw: random.Random, others: list[Base], most: int = SMALL_BYTES) -> bytes:
    """Return a damaged input of at most ``most`` bytes."""
    data = base.data
    if base.kind == "nccl-profiler" and draw.random() < 0.8:
        return sealed_damage(data, draw)[:most]
    if base.kind == "xplane" and draw.random() < 0.8:
        return message_damage(data, draw)[: 4 * most]
    if draw.random() < 0.4:
        data = twisted(data, draw) or data
    if draw.random() < 0.7 or data is base.data:
        data = damaged(data, draw, others)
    if base.kind in ("bench", "nccl-log") and draw.random() < 0.15:
        data = damaged(carried(data, draw), draw, others) if draw.random() < 0.5 else carried(data, draw)
    if draw.random() < 0.03:
        packed = bytearray(gzip.compress(data, 1))
        packed[draw.randrange(len(packed))] ^= 1 << draw.randrange(8)
        data = bytes(packed)
    return data[:most]


def carried(data: bytes, draw: random.Random) -> bytes:
    """Return lines as launchers, container runtimes, terminals and pages hand them on."""
    prefix = draw.choice(
        ("[1,0]<stdout>:", "12: ", "[rank3]: ", "(W[rank=9] pid=7) ", "2024-05-01T12:00:00.1Z stdout F ", "w-1 | ")
    )
    wraps: tuple[Callable[[str], str], ...] = (
        lambda line: prefix + line,
        lambda line: json.dumps({"log": line + "\n", "stream": "stdout"}),
        lambda line: json.dumps({"textPayload": prefix + line, "n": [1, {"message": line[:9]}]}),
        lambda line: f"\u2502 {line:<90} \u2502",
        html.escape,
    )
    wrap = draw.choice(wraps)
    return "".join(wrap(line) + "\n" for line in data.decode("utf-8", "replace").splitlines()).encode(
        "utf-8", "replace"
    )


def damaged(data: bytes, draw: random.Random, others: list[Base]) -> bytes:
    """Return bytes with one to four kinds of damage, whatever they mean."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at, width, how = draw.randrange(len(out) + 1), draw.choice((1, 1, 4, 16, 200, 5000)), draw.randrange(11)
        if how == 0 and draw.random() < 0.4:
            del out[at:]
        elif how == 1:
            del out[at : at + width]
        elif how == 2:
            out[at:at] = out[at : at + width]
        elif how == 3 and out:
            out[min(at, len(out) - 1)] ^= 1 << draw.randrange(8)
        elif how == 4:
            out[at:at] = draw.randbytes(width)
        elif how == 5:
            other = draw.choice(others).data
            out[at : at + width] = other[draw.randrange(len(other) + 1) :][:width]
        elif how == 6:
            out[at:at] = draw.choice((b"[", b"{", b'{"a":', b"(", b"]}")) * draw.choice((1, 50, 5000))
        elif how == 7:
            out[at : at + 1] = draw.choice((b"\x00\xff\xfe", b"\xff", b"\x1b[2J", b"\r\n", b"\n\n", b"\xed\xa0\x80"))
        else:
            found = _NUMBER.search(out, at)
            if found:
                out[found.start() : found.end()] = draw.choice(NUMBERS)
    return bytes(out)


def twisted(data: bytes, draw: random.Random) -> bytes | None:
    """Return JSON, or lines of JSON, with some values replaced by strange ones or gone; None for what is neither."""
    rate = draw.choice((0.002, 0.01, 0.05))

    def change(value: Any) -> Any:
        if draw.random() < rate:
            return draw.choice(STRANGE)
        if isinstance(value, dict):
            return {key: change(each) for key, each in value.items() if draw.random() >= rate / 2}
        return [change(each) for each in value if draw.random() >= rate / 4] if isinstance(value, list) else value

    with contextlib.suppress(ValueError, RecursionError):
        return json.dumps(change(json.loads(data))).encode("utf-8", "surrogatepass")
    with contextlib.suppress(ValueError, RecursionError):
        lines = [json.dumps(change(json.loads(line))) for line in data.splitlines() if line.strip()]
        return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"
    return None


def large(base: Base, draw: random.Random) -> bytes:
    """Return a damaged input of at least ``LARGE_BYTES``: the recording many times over, or one thing in it that long."""
    body = hurt(base, draw, [base], 1 << 30)
    times = LARGE_BYTES // max(len(body), 1) + 1
    how = draw.randrange(3)
    if how == 0 and body.lstrip()[:1] in (b"{", b"["):
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(body)
            return json.dumps(_longer(document, times)).encode("utf-8", "surrogatepass").ljust(LARGE_BYTES)
    if how == 1:
        at = draw.randrange(len(body) + 1)
        return body[:at] + draw.choice((b"x", b"9", b"[", b" ", b"\x00", b"\n", b"a,")) * LARGE_BYTES + body[at:]
    return body * times


def _longer(value: Any, times: int) -> Any:
    """Repeat the longest list of a document."""
    lists: list[list[Any]] = []
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, list):
            lists.append(each)
            todo += each[:50]
        elif isinstance(each, dict):
            todo += each.values()
    longest = max(lists, key=len, default=None)
    if longest:
        longest.extend(longest[:] * min(times, 200_000 // len(longest) + 1))
    return value


# ---------------------------------------------------------------------------------------------------- the watch
@dataclass(frozen=True)
class Outcome:
    """What came of one input: trace, refused or failed; of a failure what it was and where."""

    what: str
    wrong: str = ""
    place: str = ""
    took_s: float = 0.0
    grew_bytes: int = 0


@dataclass
class Tally:
    """What came of the inputs so far, by kind; of each place that fails ``examples`` commands are printed at once."""

    examples: int = 1
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    places: Counter[str] = field(default_factory=Counter)
    slowest_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    most_bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, kind: str, outcome: Outcome, again: str) -> None:
        """Count one; ``again`` is the command that tries it alone."""
        self.counts[kind][outcome.what] += 1
        self.slowest_s[kind] = max(self.slowest_s[kind], outcome.took_s)
        self.most_bytes[kind] = max(self.most_bytes[kind], outcome.grew_bytes)
        if outcome.what == "failed":
            place = f"{outcome.place} {outcome.wrong.split(':')[0]}"
            self.places[place] += 1
            if self.places[place] <= self.examples:
                print(f"{again}   # {outcome.place} {outcome.wrong}", flush=True)

    def close(self, cpu_s: float) -> int:
        """Print a line of each kind and of each place that failed; return the exit code."""
        for kind, counts in self.counts.items():
            told = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
            most = f"at most {self.slowest_s[kind]:.1f} s and {self.most_bytes[kind] >> 20} MiB"
            print(f"{kind:16} {counts.total():>8,} inputs: {told}; {most}")
        for place, count in self.places.most_common():
            print(f"{count:>6} x {place}")
        print(f"{cpu_s / 3600:.2f} hours of processor time")
        return int(bool(self.places))


def shared_out(given: argparse.Namespace, script: str, again: Callable[[str, int], str]) -> int:
    """Have a script's ``block`` try all inputs, or as many as time allows, by whoever works; print what came of them.

    ``block(options, first, inputs)`` returns (kind, number, fields of the Outcome) of each; ``again``: what tries one alone.
    """
    asked = [given.only] if given.only is not None else [*range(given.first, given.first + given.inputs)]
    options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(given).items()}
    own = {name: value for name, value in options.items() if name not in ("executor", "first", "inputs", "minutes")}
    tally, path = Tally(given.examples), Path(script).resolve()
    blocks = [(path, "block", (own, asked[at], len(asked[at : at + BLOCK]))) for at in range(0, len(asked), BLOCK)]
    with campaigns.resumable(given.executor) as fan:
        for _, came in campaigns.within(fan, campaigns.of_script, blocks, 60 * given.minutes):
            for kind, number, outcome in came:
                tally.add(kind, Outcome(*outcome), again(kind, number))
    return tally.close(fan.account.cpu_s)


def arguments_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with what every campaign of damaged input takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="published recordings")
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", type=int, help="this input alone, with its traceback")
    parser.add_argument("--keep", type=Path, help="leave the input's files in this folder")
    campaigns.add_executor(parser)
    parser.add_argument("--examples", type=int, default=1, help="commands printed for each place that fails")
    return parser


def watched(try_it: Callable[[], object], *, loud: bool = False) -> Outcome:
    """Try something; what must come is an answer or an error of ours, in time and within memory."""
    from ringwright.ground.errors import RingwrightError

    floor = _peak(reset=True)
    began = time.process_time()
    _alarm(began, 10)
    what, wrong, place = "trace", "", ""
    try:
        try_it()
    except RingwrightError as error:
        what = "refused"
        if not str(error).strip():
            what, wrong = "failed", "an error without words"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever else comes out is what is sought
        if loud:
            traceback.print_exc()
        what, wrong, place = "failed", f"{type(error).__name__}: {error}"[:200], _place(error)
    finally:
        signal.alarm(0)
    took_s, grew = time.process_time() - began, _peak() - floor
    if took_s > LIMIT_S:
        what, wrong = "failed", f"{took_s:.0f} s of processor time"
    elif grew > MEMORY_BYTES:
        what, wrong = "failed", f"{grew >> 20} MiB of memory"
    return Outcome(what, wrong, place, took_s, grew)


def _place(error: BaseException) -> str:
    """Return the last line of ours that an error passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/ringwright/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/ringwright/')[2]}:{frames[-1].lineno}" if frames else "?"


def _peak(*, reset: bool = False) -> int:
    """Return the most memory that this process had, since the last ``reset``."""
    with contextlib.suppress(OSError):
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) << 10
    return 0


def _alarm(began_s: float, times: int) -> None:
    """Look every three minutes whether it took too much of the processor, or came to nothing in ten looks."""

    def look(*_: object) -> None:
        if time.process_time() - began_s > LIMIT_S or times <= 0:
            raise TimeoutError("no answer in time")
        _alarm(began_s, times - 1)

    signal.signal(signal.SIGALRM, look)
    signal.alarm(int(6 * LIMIT_S))


def used(trace: Any, draw: random.Random, share: float = 1.0) -> None:
    """Do with a ``share`` of Traces what commands do: sum it up, and now and then show it, write it, or compare it."""
    from ringwright.analysis.summary import summarise
    from ringwright.reports import html as pages
    from ringwright.reports import terminal

    if share < 1 and draw.random() >= share:
        return
    summary = summarise(trace)
    json.dumps(summary)
    chance = draw.random()
    if chance < 0.15:
        pages.page(summary)
    elif chance < 0.3:
        terminal.write(summary, io.StringIO())
    elif chance < 0.35:
        from ringwright.analysis.compared.diff import diff

        diff(summary, summary)
    elif chance < 0.4:
        from ringwright.formats.exports.redact import redact

        redact(trace)
