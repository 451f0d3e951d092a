"""Random and hostile arrays for the compiled loops: each is answered or refused, never followed out of its bounds.

scripts/fuzz-arrays --inputs 20000 --seed 0            every entry point, so many inputs each
scripts/fuzz-arrays --entry job --only 4711            one input again
scripts/sanitize --run scripts/fuzz_arrays.py --inputs 20000    the same with the address and undefined-behaviour sanitizers

The inputs run in a process of their own: its death, or 5 s of processor time for one input, is told with the command that makes
the input again, and the next go on. What may be raised is ValueError, TypeError and OverflowError.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ringwright_lab.testing import campaigns

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

ONE_S = 5
STRETCH = 500  # inputs that are one task
FOREVER = 1 << 62
CAME = ("answered", "refused", "failed")
REFUSED = (ValueError, TypeError, OverflowError)
WHOLE = (0, 1, 2, 3, 7, 1000, 1 << 20, 1 << 40)
HOSTILE_WHOLE = (-1, -(2**31), 2**31 - 1, 2**31, 2**32, (1 << 62) - 1, 1 << 62, 2**63 - 1, -(2**63))
PACES = (0.0, 1e-300, 1e-3, 1.0, 7.5, 1e6, 1e300, float("inf"))
HOSTILE_PACES = (-1.0, float("nan"), -float("inf"), 5e-324, 1.7e308)

Arrays = dict[str, Any]


# ----------------------------------------------------------------------------------------------- inputs that keep the rules
def cuts(draw: random.Random, rows: int, most: int) -> np.ndarray:
    """Return starts of ``rows`` lists of up to ``most`` entries each."""
    return np.cumsum([0, *(draw.randint(0, most) for _ in range(rows))], dtype=np.int64)


def picked(draw: random.Random, values: tuple[Any, ...], count: int, kind: type) -> np.ndarray:
    return np.array([draw.choice(values) for _ in range(count)], dtype=kind)


def below(draw: random.Random, limit: int, count: int) -> np.ndarray:
    return np.array([draw.randrange(limit) for _ in range(count)], dtype=np.int32)


def graph(draw: random.Random, nodes: int) -> Arrays:
    """Return who follows whom, mostly forwards, and how many each waits for."""
    starts = cuts(draw, nodes, 3)
    rows = np.repeat(np.arange(nodes), np.diff(starts))
    after = [
        draw.randrange(row + 1, nodes) if row + 1 < nodes and draw.random() < 0.97 else draw.randrange(nodes)
        for row in rows
    ]
    waits = np.bincount(np.array(after, dtype=np.int64), minlength=nodes).astype(np.int32)
    return {"next_starts": starts, "nexts": np.array(after, dtype=np.int32), "waits": waits}


def changes(draw: random.Random, servers: int) -> Arrays:
    """Return faults of links, sorted by link and time."""
    count, later = draw.choice((0, 0, 1, 4)), draw.choice((0, 0, 2))
    return {
        "change_resource": np.sort(below(draw, servers, count)).astype(np.int64),
        "change_time": np.sort(picked(draw, WHOLE, count, np.int64)),
        "change_ps_per_byte": picked(draw, PACES, count, np.float64),
        "delay_resource": np.sort(below(draw, servers, later)).astype(np.int64),
        "delay_time": np.sort(picked(draw, WHOLE, later, np.int64)),
        "delay_latency": picked(draw, WHOLE, later, np.int64),
    }


def messages(draw: random.Random) -> Arrays:
    """Return the arrays that ``events`` and ``flows`` share: messages on their ways over links."""
    count, joins, servers = draw.randint(0, 9), draw.choice((0, 0, 2)), draw.randint(1, 5)
    starts = cuts(draw, count, 3)
    flags = (0, 1, 255)
    return {
        "hop_starts": starts,
        "hops": below(draw, servers, int(starts[-1])),
        **graph(draw, count + joins),
        "size_bytes": picked(draw, WHOLE, count, np.int64),
        "delay": picked(draw, WHOLE, count, np.int64),
        "ps_per_byte": picked(draw, PACES, servers, np.float64),
        "latency": picked(draw, WHOLE, servers, np.int64),
        "whole": picked(draw, flags, servers, np.uint8),
        "holds": picked(draw, flags, servers, np.uint8),
        **changes(draw, servers),
    }


def events(draw: random.Random) -> Arrays:
    """Return messages of which some are branches of others: nothing but its fork releases a branch."""
    made = messages(draw)
    count = len(made["size_bytes"])
    free = [at for at in range(count) if at not in made["nexts"]]
    children = draw.sample(free, min(len(free), draw.choice((0, 0, 1, 3))))
    waits = made["waits"].copy()
    waits[children] = 1
    parents = np.sort(below(draw, max(count, 1), len(children)))
    return made | {
        "waits": waits,
        "parent": parents,
        "hop": below(draw, 3, len(children)),
        "child": np.array(children, np.int32),
    }


def flows(draw: random.Random) -> Arrays:
    made = messages(draw)
    classes = draw.randint(1, 4)
    starts = cuts(draw, classes, 3)
    ways = below(draw, len(made["ps_per_byte"]), int(starts[-1]))
    return made | {"owner": below(draw, classes, len(made["size_bytes"])), "starts": starts, "ways": ways}


def fair_rates(draw: random.Random) -> Arrays:
    starts = cuts(draw, draw.randint(0, 8), 3)
    resources = draw.randint(1, 5)
    capacity = picked(draw, (0, 1, 1000, 1 << 50, 1 << 60), resources, np.int64)
    return {"starts": starts, "ways": below(draw, resources, int(starts[-1])), "capacity": capacity}


def order(draw: random.Random) -> Arrays:
    count, held = draw.randint(0, 12), draw.randint(1, 6)
    steps = np.sort(below(draw, 5, count)).astype(np.int32)
    places = {name: picked(draw, (0, 1, 2, 3, 1 << 40), count, np.int64) for name in ("reads", "writes")}
    return {"message": below(draw, held, count), "step": steps, **places, "messages": held}


def job(draw: random.Random) -> Arrays:
    from job_cases import random_job

    flat = random_job(draw.randrange(1 << 30), draw.choice((4, 30)))
    held = {each.name: getattr(flat, each.name) for each in dataclasses.fields(flat)}
    queues = {f"queues.{each.name}": getattr(flat.queues, each.name) for each in dataclasses.fields(flat.queues)}
    return {**held, **queues}


# ------------------------------------------------------------------------------------------------------------ the damage
def hurt(arrays: Arrays, draw: random.Random) -> Arrays:
    """Change one to three arrays: values beyond their range, other lengths, other types."""
    out = dict(arrays)
    names = [name for name, value in out.items() if isinstance(value, np.ndarray | int)]
    for name in draw.sample(names, min(len(names), draw.choice((1, 1, 2, 3)))):
        value = out[name]
        out[name] = (
            damaged(value, draw) if isinstance(value, np.ndarray) else draw.choice((-1, 0, 1, 3, 2**31, 2**40, 2**62))
        )
    return out


def damaged(array: np.ndarray, draw: random.Random) -> np.ndarray:
    how = draw.randrange(12)
    if how == 0:
        return array[:-1].copy()
    if how == 1:
        return np.concatenate([array, array[-1:] if len(array) else np.zeros_like(array, shape=(1, *array.shape[1:]))])
    if how == 2:
        return array[:0].copy()
    if how == 3:
        with np.errstate(invalid="ignore"):
            return array.astype(draw.choice((np.int8, np.int32, np.int64, np.float64, np.uint64)), casting="unsafe")
    if how == 4:
        return np.repeat(array, 2)[::2]  # not contiguous
    if how == 5:
        return np.array(draw.sample(array.tolist(), len(array)), dtype=array.dtype).reshape(array.shape)
    out = array.copy()
    if out.size and out.dtype != bool:
        at = draw.randrange(out.size)
        if out.dtype.kind == "f":
            out.flat[at] = draw.choice(HOSTILE_PACES + PACES)
        else:
            bounds = np.iinfo(out.dtype)
            near = (int(out.flat[at]) - 1, int(out.flat[at]) + 1)
            out.flat[at] = min(
                max(draw.choice((*HOSTILE_WHOLE, *WHOLE, *near, *near)), int(bounds.min)), int(bounds.max)
            )
    return out


# ------------------------------------------------------------------------------------------------------------ the calls
def flat_of(arrays: Arrays) -> Any:
    from ringwright.engines.job.flat import FlatJob, Queues

    queues = Queues(
        **{name.removeprefix("queues."): value for name, value in arrays.items() if name.startswith("queues.")}
    )
    return FlatJob(
        **{name: value for name, value in arrays.items() if "." not in name and name != "queues"}, queues=queues
    )


def matched(draw: random.Random) -> Arrays:
    """Return arcs over resources, and chunks that all or one rank want."""
    p, arcs, resources, chunks = draw.randint(1, 5), draw.randint(0, 9), draw.randint(1, 5), draw.randint(0, 7)
    starts, exchanges = cuts(draw, arcs, 3), draw.random() < 0.5
    times = (0, 1, 7, 1000, 1 << 20)
    return {
        "p": p,
        "src": below(draw, p, arcs),
        "dst": below(draw, p, arcs),
        "hop_starts": starts,
        "hops": below(draw, resources, int(starts[-1])),
        "delay": picked(draw, times, arcs, np.int64),
        "ps_per_byte": picked(draw, (0.0, 1e-3, 1.0, 7.5), resources, np.float64),
        "latency": picked(draw, times, resources, np.int64),
        "holds": picked(draw, (0, 1, 255), resources, np.uint8),
        "root": below(draw, p, chunks),
        "target": below(draw, p, chunks) if exchanges else np.full(chunks, -1, np.int32),
        "size_bytes": picked(draw, times, chunks, np.int64),
        "far": below(draw, 9, p * p),
        "yard": below(draw, p, p) if draw.random() < 0.5 else np.zeros(0, np.int32),
        "merge": draw.choice((1, 2, 1 << 40)),
        "taper": draw.choice((0, 1, 3)),
        "rarest": draw.random() < 0.5,
        "seed": draw.choice((0, 1, 2**64 - 1)),
    }


ENTRIES: dict[str, Callable[[random.Random], Arrays]] = {
    "events": events,
    "flows": flows,
    "fair_rates": fair_rates,
    "order": order,
    "job": job,
    "matched": matched,
}


def claim(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def tried(entry: str, seed: str, number: int) -> str:
    """Make one input, call the entry point and return what came: answered or refused; what is wrong raises AssertionError."""
    from ringwright.native import engine, expand

    draw = random.Random(f"{seed} {entry} {number}")  # noqa: S311 - inputs, no secrets
    arrays = ENTRIES[entry](draw)
    if draw.random() < 0.6:
        arrays = hurt(arrays, draw)
    try:
        if entry == "job":
            found = engine.job(flat_of(arrays))
        else:
            found = getattr(expand if entry == "matched" else engine, entry)(**arrays)
    except REFUSED:
        return "refused"
    if entry in ("events", "flows"):
        start, end = found
        claim(len(start) == len(end) == len(arrays["waits"]), "columns of other lengths")
        claim(min(start.min(initial=0), end.min(initial=0)) >= 0, "a time before the beginning")
        claim(end.max(initial=0) <= FOREVER, "a time after for ever")
    if entry == "job":
        times = np.array(found[:4])
        claim((np.diff(times[:, times[3] >= 0], axis=0) >= 0).all(), "an end before its beginning")
    if entry == "matched":
        claim(bool((found[3] >= found[2]).all()), "an end before its beginning")
        claim(len(found[4]) == len(found[0]) + 1 and int(found[4][-1]) == len(found[5]), "pieces that no message has")
    if entry == "fair_rates":
        claim(found.min(initial=0) >= 0, "a rate below nothing")
    return "answered"


# --------------------------------------------------------------------------------------------------------- the campaign
def work(given: argparse.Namespace) -> None:
    """Try a stretch of inputs; the number under way stands in a file, the counts are printed at the end."""
    counts: Counter[str] = Counter()
    note = os.open(given.note, os.O_WRONLY)
    for number in range(given.first, given.first + given.inputs):
        os.pwrite(note, f"{number:12d}{''.join(f'{counts[name]:12d}' for name in CAME)}".encode(), 0)
        spent = resource.getrusage(resource.RUSAGE_SELF)
        used = int(spent.ru_utime + spent.ru_stime) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used + ONE_S, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        try:
            counts[tried(given.entry, given.seed, number)] += 1
        except Exception as error:  # noqa: BLE001 - whatever else comes out is what is sought
            counts["failed"] += 1
            print(f"{again(given.entry, given.seed, number)}   # {type(error).__name__}: {error}", flush=True)
    print("counts", *(counts[name] for name in CAME), flush=True)


def again(entry: str, seed: str, number: int) -> str:
    return f"scripts/fuzz-arrays --seed {seed} --entry {entry} --only {number}"


def stretch(entry: str, seed: str, first: int, inputs: int) -> dict[str, Any]:
    """Run a stretch of inputs of an entry point, in processes that they may end; return what is wrong, and counts: a task."""
    totals, lines, last = Counter(dict.fromkeys((*CAME, "died"), 0)), [], first + inputs
    with tempfile.NamedTemporaryFile() as note:
        while first < last:
            asked = {"entry": entry, "seed": seed, "first": first, "inputs": last - first, "note": note.name}
            words = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
            flags = ["-S"] if sys.flags.no_site else []
            done = subprocess.run(
                [sys.executable, *flags, __file__, *words], capture_output=True, text=True, check=False
            )
            for line in done.stdout.splitlines():
                if line.startswith("counts "):
                    totals.update(dict(zip(CAME, map(int, line.split()[1:]), strict=True)))
                else:
                    lines.append(line)
            if done.returncode == 0:
                break
            number, *came = map(int, Path(note.name).read_text().split() or [first, 0, 0, 0])
            totals.update(dict(zip(CAME, came, strict=True)) | {"died": 1})
            why = next(
                (line for line in done.stderr.splitlines() if "ERROR" in line or "runtime error" in line),
                done.stderr[-300:],
            )
            lines.append(f"{again(entry, seed, number)}   # ended with {done.returncode}: {why}")
            first = number + 1
    return {"lines": lines, "totals": dict(totals)}


def campaign(given: argparse.Namespace) -> int:
    """Run all inputs of the entry points, by stretches; print what is wrong as it comes, and return 1 where anything is."""
    entries = [entry for entry in ENTRIES if given.entry in (None, entry)]
    asked = [
        (entry, given.seed, first, min(STRETCH, given.first + given.inputs - first))
        for entry in entries
        for first in range(given.first, given.first + given.inputs, STRETCH)
    ]

    def tell(came: dict[str, Any]) -> None:
        for line in came["lines"]:
            print(line, flush=True)

    every = campaigns.scripted(given.executor, Path(__file__), stretch, asked, tell)
    wrong = 0
    for entry in entries:
        totals = sum(
            (Counter(came["totals"]) for of, came in zip(asked, every, strict=True) if of[0] == entry), Counter()
        )
        died, counts = totals["died"], {name: totals[name] for name in CAME}
        print(f"{entry:12} {given.inputs:>9,} inputs: {counts}, {died} ended the process", flush=True)
        wrong += died + totals["failed"]
    return int(wrong > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--entry", choices=ENTRIES)
    parser.add_argument("--only", type=int)
    parser.add_argument("--note", help=argparse.SUPPRESS)
    campaigns.add_executor(parser)
    given = parser.parse_args()
    if given.note:
        work(given)
        return 0
    if given.only is not None:
        print(tried(given.entry, given.seed, given.only))
        return 0
    return campaign(given)


if __name__ == "__main__":
    sys.exit(main())
