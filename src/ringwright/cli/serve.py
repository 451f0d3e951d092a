"""``ringwright serve``: jobs in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.ground.stores import is_address

if TYPE_CHECKING:
    from ringwright.reports.serve.server import Address


def serve(
    *paths: str,
    sample: options.Sample = False,
    port: int | None = None,
    host: str = "127.0.0.1",
    token: str = "",
    follow: bool = False,
    keep: Path | None = None,
    lasts: Annotated[str | None, Parameter(name="--for")] = None,
    no_open: bool = False,
    fleet: bool | None = None,
    json: options.Json = False,
    executor: options.Executor = None,
) -> int:
    """Serve recordings, their reports and every what-if on one page, until Ctrl-C.

    Parameters
    ----------
    paths
        Logs, folders or captures, or folders of many of them. The page reads nothing beside them but what is sent to it.
    port
        Usual: 8642, or the next one that is free; 0 takes a free one.
    host
        Address to listen on; beyond this machine a token is asked for.
    token
        What a browser must know (usual: none on this machine, else one that is made and printed). Give one where others use this
        machine too.
    follow
        Read the recordings anew whenever they have grown.
    keep
        Folder of what was opened, asked and answered (usual: ~/.local/state/ringwright/reports/serve).
    lasts
        End after so long (10s, 5min), else with Ctrl-C or SIGTERM.
    no_open
        Open no browser, also where there is a screen.
    fleet
        Each entry of a folder is a job, or --no-fleet: all of it is one. Usual: saved Traces and folders of the verb run, where
        there are several of them in a folder that is no recording itself, are jobs.
    json
        Print one JSON object once requests are taken (schema ringwright.serve/1).

    Examples
    --------
    ringwright serve --sample --port 0 --for 2s
    """
    from ringwright.executors.kinds import not_by_ranks
    from ringwright.formats.sources.gate.addresses import fetched
    from ringwright.ground.units import parse_time
    from ringwright.reports.serve import server

    not_by_ranks(executor, "serve reads in processes of its own")
    given = reading.inputs(paths, sample=sample) if paths or sample else []
    held = []  # copies of what lies in a store, as long as it is served
    for number, path in enumerate(given):
        if is_address(path):
            copy, folder = fetched(path)
            given[number] = str(copy)
            held.append(folder)

    def ready(address: Address, note: str) -> None:
        server.announce(address, note, as_json=json)
        if not no_open:
            server.open_browser(address)

    server.serve(
        given,
        host=host,
        port=port,
        token=token,
        keep=keep,
        follow=follow,
        fleet=fleet,
        executor=executor or "",
        ready=ready,
        lasts_s=parse_time(lasts) if lasts is not None else None,
    )
    return 0
