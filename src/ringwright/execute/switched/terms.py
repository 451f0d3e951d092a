"""How real ranks use a switch that adds: knobs as they are typed, ``switchml:slots=16:codec=int8``, and what a job is told.

Knobs: slots (packets under way, each in two versions at the switch); codec (how reals travel: block-exponent, int8 or
    fixed-point; int32 goes as it is); payload (elements of 4 bytes in a frame: 32, 64, 128 or 256); scale (what fixed-point
    multiplies by); loss (share of what comes that each rank's socket and the switch lose, by lot, for trials); xdp (whether
    the kernel adds, on the ports of the switches, and no program on a socket).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringwright.execute.switched.frames import MOST_SLOTS
from ringwright.execute.switched.worker import Membership
from ringwright.ground import spellings
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Range, knobs_of
from ringwright.model.codecs.fixed_point import USUAL_SCALE

SLUG = "switchml"
ALL_PORTS = "all"  # on which the kernel can add
ELEMENT_BYTES = 4  # of what a payload counts, whatever travels


class SwitchTerms(msgspec.Struct, frozen=True):
    """How one contender uses a switch: its job there, and its frames."""

    job: int = 0
    slots: int = 64
    codec: str = "block-exponent"
    payload_bytes: int = 1024
    loss: float = 0.0
    scale: float = USUAL_SCALE
    xdp: bool = False

    def member(self, number: int, workers: int, session: int = 0, key: bytes = b"") -> Membership:
        """Return what a worker says of itself; UsageError for what no frame can be, or no codec has room for."""
        made = Membership(
            number, workers, self.job, self.slots, self.codec, self.payload_bytes, session, key, self.scale
        )
        made.shape.width  # noqa: B018 - refuses
        return made


class WorkerPort(msgspec.Struct, frozen=True):
    """Where one rank's switch listens, and its number there. ``key`` and ``session`` are the same for all ranks.

    ``session``: of one start of the ranks; ``xdp_port``: where the switch listens whose kernel adds; 0: there is none.
    """

    host: str
    port: int
    number: int
    key: bytes
    session: int = 0
    xdp_port: int = 0


def chosen(
    *,
    slots: Annotated[int, Range(1, MOST_SLOTS)] = 64,
    codec: Annotated[str, Choices(("block-exponent", "int8", "fixed-point"))] = "block-exponent",
    payload: Annotated[int, Range(32, 256)] = 256,
    scale: Annotated[float, Range(1, 2**31)] = USUAL_SCALE,
    loss: Annotated[float, Range(0, 0.99)] = 0.0,
    xdp: bool = False,
) -> SwitchTerms:
    """Return the terms of these knobs."""
    return SwitchTerms(0, slots, codec, ELEMENT_BYTES * payload, loss, scale, xdp)


KNOBS = knobs_of(chosen)
REMEDY = "it has " + ", ".join(f"{knob.name} ({knob.brief})" for knob in KNOBS.values())


def is_switched(spelling: str) -> bool:
    """Return whether a switch carries this algorithm out, and not a plan for each rank."""
    return spelling.partition(":")[0].partition("@")[0] == SLUG


def read_terms(spelling: str, workers: int) -> SwitchTerms:
    """Return what ``switchml:slots=16:codec=int8`` means for so many workers; UsageError for what it cannot be."""
    typed: dict[str, object] = {}
    for setting in spelling.split(":")[1:]:
        name, _, text = setting.partition("=")
        if name not in KNOBS:
            raise UsageError(f"a switch on real ranks has no '{name}'", where=spelling, remedy=REMEDY)
        try:
            typed[name] = spellings.parse(SLUG, KNOBS[name], text)
        except UsageError as error:
            raise UsageError(error.what, where=spelling, remedy=REMEDY) from None
    terms: SwitchTerms = chosen(**typed)  # type: ignore[arg-type]
    try:
        terms.member(0, workers)
    except UsageError as error:
        raise UsageError(error.what, where=spelling, remedy=error.remedy) from None
    return terms
