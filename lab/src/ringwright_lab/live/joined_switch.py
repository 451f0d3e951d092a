"""How ranks of a schedule come to a switch that adds: one that rank 0 starts, or one that runs already."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ringwright.execute import launch
from ringwright.execute.switched.client import SwitchClient
from ringwright.execute.switched.datagrams import parse
from ringwright.execute.switched.serving import read_key
from ringwright.execute.switched.switch import SwitchSettings
from ringwright.execute.switched.switch_process import AskedSwitch, StartedSwitch, started
from ringwright.execute.switched.terms import SLUG, SwitchTerms, is_switched, read_terms
from ringwright.ground import drafts
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright_lab.live.start import Team
from ringwright_lab.live.through_switch import SwitchSums, require_float32

# Of a schedule's own patience: the error that names who is missing comes before that of the schedule.
PATIENCE_SHARE = 0.7
LOOPBACK = "127.0.0.1"
Result = TypeVar("Result")


def joined(
    team: Team, aggregate: str, switch: str | None, key_file: str | Path | None, error_feedback: bool, timeout_s: float
) -> SwitchSums:
    """Return this rank's worker at the switch, joined; every rank calls it alike, and all raise what one of them met.

    ``aggregate``: ``switchml:codec=int8``. ``switch``: HOST:PORT of one that runs, ``key_file`` where it asks for a key;
    None: rank 0 starts one. UsageError for what cannot be, InfeasibleError and RanksFailedError where no switch lets the
    ranks join.
    """
    if not is_switched(aggregate):
        raise UsageError(f"'{aggregate}' adds no gradients of live ranks", remedy=f"aggregate='{SLUG}'")
    terms = read_terms(aggregate, team.world)
    if terms.xdp:
        raise UsageError(
            "gradients go through a switch whose kernel adds only where that runs already",
            where=aggregate,
            remedy="ringwright switch --xdp all --listen HOST:PORT, and switch='HOST:PORT' with aggregate='switchml'",
        )
    # A switch of ours has as many ports as there are ranks, any other has to.
    SwitchSettings(team.world, terms.slots)
    for name, parameter in team.parameters.items():
        require_float32(name, parameter.dtype)
    with contextlib.ExitStack() as held:
        reached = team.gather(team.wires[0].peer if team.rank else LOOPBACK)
        asked = _alike(team, lambda: _first_told(held, reached, terms, team, switch, key_file))
        address, key, session = team.share(asked and asked[1])
        member = terms.member(team.rank, team.world, session, key)
        patience_s = PATIENCE_SHARE * timeout_s
        client = _alike(team, lambda: held.enter_context(SwitchClient(member, address, patience_s=patience_s)))
        if terms.loss:
            client.wire.lose(terms.loss)
        _alike(team, client.join)
        return SwitchSums(client, held.pop_all(), asked[0] if asked else None, error_feedback=error_feedback)


def _alike(team: Team, call: Callable[[], Result]) -> Result:
    """Return what a call gives on this rank, once no rank has met an error; else raise the first rank's on all of them."""
    given: list[Result] = []
    met: RingwrightError | None = None
    try:
        given.append(call())
    except RingwrightError as error:
        met = error
    first = next((each for each in team.gather(met) if each is not None), None)
    if first is not None:
        raise first
    return given[0]


Told = tuple[tuple[str, int], bytes, int]  # where the switch listens, the key, the session


def _first_told(
    held: contextlib.ExitStack,
    reached: list[str],
    terms: SwitchTerms,
    team: Team,
    switch: str | None,
    key_file: str | Path | None,
) -> tuple[StartedSwitch | None, Told] | None:
    """Return on rank 0 what all ranks have to know of the switch, and the switch where rank 0 has started it."""
    if team.rank:
        return None
    session = secrets.randbits(63)
    if switch is not None:
        return None, (parse(switch), read_key(Path(key_file)) if key_file is not None else b"", session)
    addresses = sorted(set(reached) - {LOOPBACK})
    if len(addresses) > 1:
        raise UsageError(
            f"ranks reach rank 0 at {' and '.join(addresses)}: which of them the switch is to listen at is not known",
            remedy=f"ringwright switch --listen HOST:PORT --workers {team.world} --key-file FILE, and switch='HOST:PORT'",
        )
    folder = held.enter_context(launch.job_folder(elsewhere=True))
    drafts.write(folder / "key", secrets.token_hex(32))  # the folder is ours alone
    asked = AskedSwitch(f"{(addresses or [LOOPBACK])[0]}:0", team.world, terms.slots, folder / "key", loss=terms.loss)
    own = held.enter_context(started(asked))
    return own, (own.address, read_key(folder / "key"), session)
