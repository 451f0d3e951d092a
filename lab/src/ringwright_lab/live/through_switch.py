"""Gradients through a switch that adds: each piece is a vector of ``ringwright switch``, in place of an all-reduce of the group.

Pieces go one after the other, as they were agreed; the switch is one that rank 0 starts, or one that runs already. A codec that
rounds leaves something over at each rank; with error feedback it is added to the next gradient of the same parameter.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import torch

from ringwright.ground.errors import RanksFailedError, UsageError

if TYPE_CHECKING:
    from ringwright.execute.switched.client import SwitchClient
    from ringwright.execute.switched.switch_process import StartedSwitch
    from ringwright_lab.live.plan import LivePlan

Order = tuple[int, int, int]  # step, operation, piece


class SwitchSums:
    """One rank's worker at the switch, and what codecs have left over of its gradients."""

    def __init__(
        self, client: SwitchClient, held: contextlib.ExitStack, own: StartedSwitch | None, *, error_feedback: bool
    ) -> None:
        self.client, self._held, self._own = client, held, own
        self._feeds_back = error_feedback
        self._plan: LivePlan | None = None
        self._left: list[np.ndarray] = []  # of each operation's buffer

    def adopt(self, plan: LivePlan, buffers: list[torch.Tensor]) -> None:
        """Follow a plan from now on; what was left over goes with its parameter. UsageError for halves of sums, or no float32."""
        for operation, buffer in zip(plan.operations, buffers, strict=True):
            if operation.op != "all-reduce":
                raise UsageError(
                    f"a switch that adds does whole all-reduces; {operation.name} is {operation.op}",
                    where=f"policy {plan.workload.policy.label}",
                    remedy="a policy that leaves sums whole (p3), or leave aggregate out",
                )
            require_float32(operation.payloads[0].name, buffer.dtype, f"policy {plan.workload.policy.label}")
        if not self._feeds_back:
            return
        before, left = self._plan, self._left
        self._plan, self._left = plan, [np.zeros(len(buffer), np.float32) for buffer in buffers]
        if before is None:
            return
        for name, at in plan.places.items():
            was = before.places[name]
            own = left[was.operation][was.first : was.first + was.elements]
            self._left[at.operation][at.first : at.first + at.elements] = own

    def add(self, order: Order, part: torch.Tensor) -> None:
        """Put the sum of all ranks in place of a piece (float32, flat); RanksFailedError where switch or ranks are silent."""
        given: np.ndarray = part.numpy()
        if not self._feeds_back or self._plan is None:
            given[:] = self._summed(given)
            return
        begin, end = self._plan.span(order[1], order[2])
        left = self._left[order[1]][begin:end]
        given += left
        total = self._summed(given)
        np.subtract(given, self.client.worker.sent(), out=left)
        given[:] = total

    def _summed(self, vector: np.ndarray) -> np.ndarray:
        """Return the sum of all ranks' vectors, float32 of shape (elements,)."""
        try:
            return self.client.all_reduce(vector)
        except RanksFailedError as error:
            code = self._own.process.poll() if self._own is not None else None
            if code is None:
                raise
            raise RanksFailedError(
                f"the switch that rank 0 started ended with {code}; {error.what}",
                where=error.where,
                remedy=error.remedy,
            ) from None

    def close(self) -> None:
        """Leave the switch, and end it where it is ours."""
        self._held.close()


def require_float32(name: str, dtype: torch.dtype, where: str = "") -> None:
    """Raise UsageError for a parameter whose gradient travels as anything else."""
    if dtype != torch.float32:
        raise UsageError(
            f"a switch that adds takes float32; {name} travels as {str(dtype).removeprefix('torch.')}",
            where=where,
            remedy="float32 parameters and element_bytes=4, or leave aggregate out",
        )
