"""A rank's vectors through a switch that adds, as something to check and to time beside programs and libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ringwright.execute import data
from ringwright.execute.native import Buffers
from ringwright.execute.switched.client import SwitchClient
from ringwright.model.codecs import block_exponent

if TYPE_CHECKING:
    from ringwright.execute.switched.terms import SwitchTerms, WorkerPort
    from ringwright.model.collective import Collective

PATIENCE_SHARE = 0.7  # of what the job allows: the error that names who is missing comes before the job's own


def declines(op: str, reduce_op: str, dtype: str) -> str:
    """Return why a switch does not do this; empty where it does."""
    if op != "all-reduce" or reduce_op != "sum":
        return f"a switch that adds does an all-reduce with sum, not {op} with {reduce_op}"
    return "" if dtype in ("float32", "int32") else f"a switch that adds takes float32 and int32, not {dtype}"


def connected(terms: SwitchTerms, port: WorkerPort, workers: int, dtype: str, timeout_s: float) -> SwitchClient:
    """Return a rank's worker for one contender; int32 goes as it is."""
    if dtype == "int32":
        terms = msgspec.structs.replace(terms, codec="none")
    member = terms.member(port.number, workers, port.session, port.key)
    client = SwitchClient(
        member, (port.host, port.xdp_port if terms.xdp else port.port), patience_s=PATIENCE_SHARE * timeout_s
    )
    if terms.loss:
        client.wire.lose(terms.loss)
    return client


class ThroughSwitch(Buffers):
    """An all-reduce of one rank: ``send`` goes through the switch and comes back as ``receive``."""

    def __init__(self, collective: Collective, rank: int, client: SwitchClient) -> None:
        self.client = client
        super().__init__(collective, rank, lambda own: lambda: np.copyto(own.receive, client.all_reduce(own.send)))

    def wrong(self, values: np.ndarray, wanted: np.ndarray) -> int:
        """Return how many elements are not what they must be; with int8, those outside the codec's bound."""
        member = self.client.member
        if member.codec != "int8" or values.shape != wanted.shape:
            return data.wrong(values, wanted)
        # Of a sum of whole numbers above 0 no contribution is larger.
        _, agreed = np.frexp(np.abs(wanted).max(initial=0.0))
        bound = block_exponent.error_bound(np.array([agreed], np.int16), member.workers, "int8")
        return int((np.abs(values - wanted) > bound).sum())
