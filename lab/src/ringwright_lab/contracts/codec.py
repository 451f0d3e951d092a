"""The contract of number formats: sums as near as declared, as wide on the wire, and so in every engine.

A format is tried on contributions of a few workers, and then on a network whose switch adds it: what messages carry there, and
how long it takes, is what its ``wire_bytes`` says. Formats may be as coarse as they like, as long as ``TOLERANCE`` says so.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.ground.headings import of_several
from ringwright.ground.knobs import knobs_of
from ringwright.model.codecs.contributions import NodeSum
from ringwright.model.codecs.deviation import deviation
from ringwright.model.codecs.formats import Codec, added, codec_of, trying
from ringwright.model.collective import DTYPE_BYTES, Collective
from ringwright_lab.contracts.outcome import DECLINED, Outcome, TriedInput

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPERATIONS: dict[str, Callable[..., Any]] = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}
WORKERS = (2, 3, 8)
ELEMENTS = 3000
MANY = 1 << 17  # numbers of one packet, in which more values than a width can tell apart are seen
TYPES = {"float32": 0.0, "float16": 2e-3}  # and what rounding to the type itself costs
ENGINES = ("closed-form", "events", "flows", "packets")
SIZE_BYTES = 4 << 20
MACHINE = "switch:4,sharp=true"
ROUNDING = 0.05  # of bytes: the last packets are not full, and packets have headers
SLACK = 0.1  # of a time: start-ups and the last packet do not grow with the width


@dataclass(frozen=True)
class TriedCodec:
    """A format under trial, with knobs of its own; ``sum_of`` gives what a node gives back."""

    codec: Codec
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def sum_of(self, given: np.ndarray, **more: Any) -> NodeSum:
        """Return what a node gives for contributions of shape (workers, elements)."""
        return added(self.codec.name, given, **{**self.knobs, **more})

    @cached_property
    def width(self) -> tuple[float, float]:
        """Bytes of a number alone to the node and back."""
        return self.codec.wire_bytes(4, **{**self._sizes, "packet": 1 << 62})

    @cached_property
    def packed(self) -> tuple[float, float]:
        """The same with its share of what a packet says once."""
        return self.codec.wire_bytes(4, **self._sizes)

    @property
    def _sizes(self) -> Mapping[str, Any]:
        return {name: value for name, value in self.knobs.items() if name in self.codec.width_knobs()}

    def has(self, knob: str) -> bool:
        """Whether the format has a knob of that name."""
        return knob in inspect.signature(self.codec.call).parameters


def normal(workers: int, elements: int = ELEMENTS, dtype: str = "float32") -> np.ndarray:
    """Return normal numbers, a row for each worker: of that dtype, shape (workers, elements)."""
    return np.random.default_rng(workers).standard_normal((workers, elements)).astype(dtype)


# ------------------------------------------------------------------------------------------------------ what it says of itself
def declared(tried: TriedCodec) -> str | None:
    """What stands beside it is there, and in words that are known."""
    from ringwright.fabrics._capabilities import ADDING

    codec = tried.codec
    if not codec.ops or (strange := set(codec.ops) - set(OPERATIONS)):
        return f"OPS is {codec.ops}, not some of {', '.join(OPERATIONS)}" if not codec.ops else f"OPS names {strange}"
    for name, words, known in (
        ("CARRIES", codec.carries, DTYPE_BYTES),
        ("ADDED_AS", filter(None, [codec.added_as]), DTYPE_BYTES),
        ("SWITCHES", codec.switches, ADDING),
    ):
        if strange := set(words) - set(known):
            return f"{name} names '{min(strange)}', not one of {', '.join(known)}"
    if (tolerance := codec.tolerance) is None or not 0 <= tolerance < 1:
        return f"TOLERANCE is {tolerance}, not an error over the result, from 0 to below 1"
    return None


def able(tried: TriedCodec) -> str | None:
    """The switches that it names add the type in which it is added, by the operations that it survives."""
    from ringwright.fabrics._capabilities import ADDING

    for name in tried.codec.switches:
        can = ADDING[name]
        if can is None or (tried.codec.added_as and tried.codec.added_as not in can.dtypes):
            return f"SWITCHES names '{name}', which adds no {tried.codec.added_as or 'numbers'}"
    return None


def documented(tried: TriedCodec) -> str | None:
    """Its docstring says what it holds and where it is from."""
    call = inspect.unwrap(tried.codec.call)
    texts = [getattr(sys.modules.get(call.__module__), "__doc__", ""), call.__doc__]
    said = of_several(tuple(filter(None, texts)))
    lacking = [name for name in ("Holds", "Source") if not said.get(name)]
    return f"its docstring has no heading {' and none '.join(lacking)}" if lacking else None


def knobs(tried: TriedCodec) -> str | None:
    """Whatever it takes besides the contributions has a name and a default."""
    first, *others = inspect.signature(tried.codec.call).parameters.values()
    strange = [each.name for each in others if each.kind is not each.KEYWORD_ONLY or each.default is each.empty]
    if strange or first.kind is first.KEYWORD_ONLY:
        return f"'{(strange or [first.name])[0]}' is no knob: keyword-only, with a default"
    unknown = set(tried.codec.of_programs) - set(knobs_of(tried.codec.call))
    return f"OF_PROGRAMS names '{min(unknown)}', which is no knob of it" if unknown else None


# ------------------------------------------------------------------------------------------------------------------- sums
def near(tried: TriedCodec) -> str | None:
    """Results are as near the exact ones as TOLERANCE says, in every type, operation and number of workers; of type and shape."""
    carries = tried.codec.carries or tuple(TYPES)
    for op in tried.codec.ops:
        for dtype, rounds in TYPES.items():
            for workers in WORKERS if dtype in carries else ():
                given = normal(workers, dtype=dtype)
                total = tried.sum_of(given, op=op)
                if (total.values.dtype, total.values.shape) != (given.dtype, given.shape[1:]):
                    return (
                        f"{total.values.dtype} of shape {total.values.shape} for contributions of {dtype} {given.shape}"
                    )
                exact = OPERATIONS[op](given.astype(np.float64), axis=0)
                off, most = deviation(total.values, exact), max(tried.codec.tolerance or 0.0, rounds)
                if off.not_finite or off.relative_rms > most:
                    return f"the {op} of {workers} workers' {dtype} is off by {off.relative_rms:.2g}, TOLERANCE says {most:g}"
    return None


def kept(tried: TriedCodec) -> str | None:
    """What it kept of each contribution adds up to the result: what error feedback rests on."""
    given = normal(4)
    total = tried.sum_of(given)
    if total.sent.shape != given.shape:
        return f"sent has the shape {total.sent.shape}, not that of the contributions {given.shape}"
    off = deviation(total.sent.astype(np.float64).sum(axis=0), total.values)
    most = max(tried.codec.tolerance or 0.0, 1e-6)
    return None if off.relative_rms <= most else f"what was sent adds up to the result but for {off.relative_rms:.2g}"


def same_again(tried: TriedCodec) -> str | None:
    """The same contributions give the same result, and are left as they were."""
    given = normal(4)
    before = given.copy()
    one, two = tried.sum_of(given), tried.sum_of(given)
    if not np.array_equal(given, before):
        return "it changes the contributions"
    return None if np.array_equal(one.values, two.values) else "the same contributions give another result each time"


def in_any_order(tried: TriedCodec) -> str | None:
    """Sums of whole numbers do not depend on the order in which contributions arrive."""
    if not tried.codec.whole_numbers:
        return f"{DECLINED}its sums are floats (no WHOLE_NUMBERS)"
    given = normal(8)
    one, two = tried.sum_of(given), tried.sum_of(given, order=[*range(8)][::-1]) if tried.has("order") else None
    return (
        None if two is None or np.array_equal(one.values, two.values) else "WHOLE_NUMBERS, but the order shows in sums"
    )


def at_the_edges(tried: TriedCodec) -> str | None:
    """Zeros stay zeros, nothing is a sum of nothing, and what is not finite is never a number again."""
    if tried.sum_of(np.zeros((3, 40), np.float32)).values.any():
        return "a sum of zeros is not zero"
    if tried.sum_of(np.zeros((3, 0), np.float32)).values.shape != (0,):
        return "there is a sum of nothing"
    given = normal(2, 64)
    given[0, 3], given[1, 40] = np.nan, np.inf
    total = tried.sum_of(given)
    if np.isfinite(total.values[[3, 40]]).any():
        return f"NaN and an infinity come out as {total.values[3]:g} and {total.values[40]:g}"
    return None if total.not_finite == 2 else f"not_finite is {total.not_finite}, not the 2 elements that were not"


def refuses(tried: TriedCodec) -> str | None:
    """It refuses operations that it does not declare, and rows that are none, with a UsageError."""
    tries: dict[str, Callable[[], object]] = {
        f"op={op}": partial(tried.sum_of, normal(2), op=op) for op in OPERATIONS if op not in tried.codec.ops
    }
    tries["numbers without workers"] = partial(tried.codec.call, np.zeros(3, np.float32))
    for what, call in tries.items():
        try:
            call()
        except UsageError:
            continue
        return f"it takes {what}, and should refuse it with a UsageError"
    return None


# ------------------------------------------------------------------------------------------------------------------ widths
def wide(tried: TriedCodec) -> str | None:
    """A number has bytes on the wire, each way, and no more values than these can tell apart."""
    for name, alone, packed in zip(("to the node", "back"), tried.width, tried.packed, strict=True):
        if not (math.isfinite(packed) and 0 < alone <= packed):
            return f"a number takes {alone:g} B {name}, with its share of the packet {packed:g} B"
    if not tried.has("packet") and tried.packed != tried.width:
        return None  # how many numbers share what a packet says is not for us to set
    total = tried.sum_of(normal(2, MANY), **({"packet": MANY} if tried.has("packet") else {}))
    for name, size, values in zip(("to the node", "back"), tried.width, (total.sent[0], total.values), strict=True):
        seen = len(np.unique(values))
        if size < 8 and seen > 2 ** (8 * size):
            return f"{seen:,} values of a number {name}, whose {size:g} B tell {2 ** (8 * size):,.0f} apart"
    return None


def on_a_machine(codec: str, added_as: str) -> tuple[Program, Topology]:
    """Return an all-reduce through a switch that adds a format, in that format, and the network."""
    from ringwright.algorithms.blocks.collnet_direct import collnet_direct
    from ringwright.fabrics import fabric

    top = fabric(MACHINE)
    able = {
        node: replace(can, codecs=("native", codec), dtypes=tuple({*can.dtypes, *filter(None, [added_as])}))
        for node, can in top.aggregators.items()
    }
    top = replace(top, aggregators=able)
    made = collnet_direct(Collective("all-reduce", range(top.n_ranks), SIZE_BYTES), top, segments=8)
    return replace(made, streams=tuple(replace(each, codec=codec) for each in made.streams)), top


def timed(tried: TriedCodec) -> str | None:
    """Every engine has it take as long, and carry as many bytes, as its numbers are wide."""
    from ringwright.engines.choose import simulate
    from ringwright.model import validity

    program, top = on_a_machine(tried.codec.name, tried.codec.added_as)
    if wrong := validity.check(program, topology=top):
        return f"a program in it is illegal: {wrong[0]}"
    plain, _ = on_a_machine("native", "")
    to, back = (size / 4 for size in tried.codec.wire_bytes(4, packet=1 << 62))
    up = np.flatnonzero(np.isin(top.dst, [*top.aggregators]))
    down = np.flatnonzero(np.isin(top.src, [*top.aggregators]))
    for engine in ENGINES:
        run, usual = simulate(program, top, engine), simulate(plain, top, engine)
        wanted = max(to, back) * usual.time_ps
        if abs(run.time_ps / wanted - 1) > SLACK:
            return f"{engine}: {run.time_ps / 1e6:.1f} us, where its width makes it {wanted / 1e6:.1f} us"
        for links, share, direction in ((up, to, "to the node"), (down, back, "back")):
            if len(usual.bytes) and abs(run.bytes[links].sum() / (share * usual.bytes[links].sum()) - 1) > ROUNDING:
                return (
                    f"{engine}: {run.bytes[links].sum():,} B {direction}, not {share * usual.bytes[links].sum():,.0f} B"
                )
    return None


CHECKS: dict[str, Callable[[TriedCodec], str | None]] = {
    "declared": declared,
    "able": able,
    "documented": documented,
    "knobs": knobs,
    "near": near,
    "kept": kept,
    "same-again": same_again,
    "any-order": in_any_order,
    "edges": at_the_edges,
    "refuses": refuses,
    "width": wide,
    "engines": timed,
}


def check_codec(codec: str | Callable[..., NodeSum]) -> list[Outcome]:
    """Return the outcome of every check on a number format; ``failures`` of them lists what is wrong.

    Checked is that sums are as near the exact ones as ``TOLERANCE`` beside it says, that no more values travel than its
    ``wire_bytes`` can tell apart, that engines take as long and carry as many bytes as it is wide, and what it says of itself.

    Parameters
    ----------
    codec
        Its name, of the house or of an entry point of ``ringwright.model.codecs``, or the function
        ``(contributions, **knobs) -> NodeSum`` with its constants beside it.

    Returns
    -------
    list of Outcome
        One: the format.

    Examples
    --------
    >>> from ringwright_lab.testing import check_codec, failures
    >>> failures(check_codec("block-exponent"))
    []
    """
    name = codec if isinstance(codec, str) else getattr(codec, "__name__", "codec").replace("_", "-")
    outcome = Outcome(TriedInput(name))
    try:
        known = codec_of(codec) if isinstance(codec, str) else Codec(name, codec)
    except RingwrightError as error:
        return [Outcome(TriedInput(name), failed={"known": error.what})]
    with trying(known):
        tried = TriedCodec(known)
        for check, look in CHECKS.items():
            outcome.run(check, partial(look, tried))
    return [outcome]
