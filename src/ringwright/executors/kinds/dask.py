"""A Dask cluster: a scheduler whose address is known, and its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from ringwright.executors.inventory import inventory
from ringwright.executors.kinds import WrappedExecutor, known, whole_number
from ringwright.ground.errors import InputError, MissingExtraError, UsageError

WHAT = "workers of a Dask scheduler; TLS by ca=, cert= and key=, each a file"
SPELLING = "dask://HOST:8786"
_FILES = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}


def opened(address: str, settings: Mapping[str, str]) -> DaskEngine:
    """Return a scheduler's workers; InputError where no scheduler answers."""
    known("dask", settings, *_FILES, "timeout")
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("a Dask cluster needs its library", extra="dask") from error
    files = {_FILES[name]: value for name, value in settings.items() if name in _FILES}
    where = f"{'tls' if files else 'tcp'}://{address or '127.0.0.1:8786'}"
    security = distributed.Security(**files, require_encryption=True) if files else None
    timeout_s = whole_number(settings, "timeout", 30)
    try:
        client = distributed.Client(
            where, security=security, timeout=timeout_s, set_as_default=False, heartbeat_interval=1000
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            "no Dask scheduler answers", where=where, remedy=f"dask scheduler; dask worker {where}; or --executor local"
        ) from error
    try:
        client.run_on_scheduler(inventory)
    except Exception as error:  # whatever it is, tasks would end in it
        client.close(timeout=1)
        raise UsageError(
            f"the Dask scheduler does not know ringwright: {error}",
            where=where,
            remedy="install it there too, as on the workers",
        ) from error
    return DaskEngine(address, client)


class DaskEngine(WrappedExecutor):
    """A client's executor; tasks of a worker that is gone are sent elsewhere by the scheduler itself."""

    def __init__(self, address: str, client: Any) -> None:
        from concurrent.futures import CancelledError

        import distributed

        workers = len(client.scheduler_info(n_workers=-1)["workers"]) or None
        super().__init__(client.get_executor(pure=False, retries=0), f"dask://{address}", workers)
        self._client = client
        self.lost = (distributed.KilledWorker, CancelledError, distributed.client.FutureCancelledError)

    def submit(self, function: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Begin a call; RuntimeError where the scheduler is gone."""
        if why := self.gone():
            raise RuntimeError(why)
        return super().submit(function, *given)

    def gone(self) -> str:
        """Return what the client says whose scheduler did not come back in ``timeout``: its futures wait for ever."""
        return "" if self._client.status not in ("closed", "closing") else "its scheduler is gone"

    def close(self, *, at_once: bool = False) -> None:
        """Let go of the scheduler, and take back what was not begun."""
        with suppress(Exception):
            self._executor.shutdown(wait=not at_once)
        self._client.close(timeout=5)
