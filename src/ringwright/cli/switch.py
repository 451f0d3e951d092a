"""``ringwright switch``: a switch that adds, as a program of its own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.ground.units import parse_time

HERE = "127.0.0.1:48864"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SwitchAbove:
    """The switch above, of which a switch is a worker."""

    parent: Annotated[str | None, Parameter(help="HOST:PORT of the switch above, of which this one is a worker.")] = (
        None
    )
    branch: Annotated[int, Parameter(help="Its number there.")] = 0


NOTHING_ABOVE = SwitchAbove()


def switch(
    *,
    listen: str = HERE,
    workers: int = 2,
    slots: int = 64,
    jobs: int = 1,
    above: SwitchAbove = NOTHING_ABOVE,
    key_file: Path | None = None,
    plain: bool = False,
    xdp: str = "",
    lose: float = 0.0,
    until_closed: bool = False,
    lasts: Annotated[str | None, Parameter(name="--for")] = None,
    json: options.Json = False,
) -> int:
    """Sum what workers send over UDP with SwitchML's header, slot by slot, and send each sum back to all of them.

    Parameters
    ----------
    listen
        HOST:PORT; port 0 takes a free one. Beyond this machine only with a key.
    workers
        Ports: workers that each job has at this switch, 32 at most.
    slots
        Of all jobs together; a slot is two frames of memory.
    jobs
        At once; each has an equal share of the slots.
    key_file
        A secret that workers and switches share; frames of others are counted and dropped.
    plain
        One datagram a call, although the kernel can do trains of them.
    xdp
        Add inside the kernel, on these ports (eth0,eth1) or on all that can. Needs root and clang.
    lose
        Share of what comes that the kernel loses, by lot: a fault, for trials (0.01).
    until_closed
        End when standard input does, and with it the program that started this one.
    lasts
        End after so long (10s, 5min), else with Ctrl-C.
    json
        Print one JSON object at the end instead (schema ringwright.switch/1).

    Examples
    --------
    ringwright switch --listen 127.0.0.1:0 --workers 4 --for 1s
    """
    from ringwright.execute.switched.datagrams import parse
    from ringwright.execute.switched.serving import SwitchServer, read_key
    from ringwright.execute.switched.switch import SwitchSettings
    from ringwright.reports.switched import counted, ready

    key = read_key(key_file) if key_file is not None else b""
    settings = SwitchSettings(workers, slots, jobs, key, above.branch if above.parent else -1)
    server = SwitchServer(
        settings, parse(listen), parent=parse(above.parent) if above.parent else None, plain=plain, xdp=xdp
    )
    if lose:
        server.lose(lose)
    ready(server, sys.stderr if json else sys.stdout)
    server.serve(parse_time(lasts) if lasts is not None else None, until_closed=until_closed)
    told = server.told()
    reading.print_json({"schema": "ringwright.switch/1", **told}) if json else counted(told, sys.stdout)
    return 0
