"""A model, its optimiser and a policy on real ranks: gradients leave as they are ready, in the order that was agreed.

With boundary ``barrier`` gradients are final when backward() returns. With boundary ``layer`` step() only marks the step;
each layer of the next forward pass waits for its own gradients and updates its own parameters. Parameters are then those of
synchronous training, bit by bit, but between step() and the next use of a layer they are old: ``flush()`` updates all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from ringwright.ground.errors import RanksFailedError, UsageError
from ringwright.model.stages import Costs, LinkCosts
from ringwright.model.trace import Trace
from ringwright.model.workload import Policy, Workload
from ringwright_lab.live import guards, profile, updates
from ringwright_lab.live.boundary import Later
from ringwright_lab.live.exchange import GradientExchange
from ringwright_lab.live.hooks import Hooks
from ringwright_lab.live.joined_switch import joined as join_switch
from ringwright_lab.live.measuring import StepTimer
from ringwright_lab.live.plan import LivePlan, plan, refuse
from ringwright_lab.live.record import Record
from ringwright_lab.live.start import Team, same_everywhere, team
from ringwright_lab.live.traffic import EmulatedLink
from ringwright_lab.live.uses import Uses

IDLE, OPEN, ENDED, FINAL = "idle", "backward", "sent", "final"


# long, parameters: they are what a training script may say of a schedule, each by its name
def schedule(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    policy: Policy | Callable[..., Workload],
    *,
    group: Any = None,
    accumulate: int = 1,
    link_rate: float | None = None,
    link: Costs | None = None,
    costs: Costs | None = None,
    knobs: Mapping[str, Any] | None = None,
    warmup: int = 1,
    average: bool = True,
    timeout_s: float = 120.0,
    check_every: int = 64,
    aggregate: str | None = None,
    switch: str | None = None,
    key_file: str | Path | None = None,
    error_feedback: bool = True,
) -> Live:
    """Schedule the gradients of ``model`` by ``policy``, a scheduler or a Policy; every rank of ``group`` calls it alike.

    Parameters and buffers of rank 0 go to all ranks. The first ``warmup`` steps send each gradient as it comes and wait for
    all, while the order and the times of the layers are measured; a scheduler is then asked with that Workload, ``costs``
    (default: the link's, or what was measured) and ``knobs``. ``link_rate`` (B/s, at which all-reduces pass) or ``link``
    emulates a serial link. ``accumulate`` = n sends with every n-th backward. No wait is longer than ``timeout_s``.

    ``aggregate`` (``switchml``, ``switchml:codec=int8``) sums through a switch that adds: the one at ``switch`` (HOST:PORT, with
    ``key_file`` where it asks for a key), or one that rank 0 starts. What a codec rounds off is added to the next gradient of the
    parameter, unless ``error_feedback`` is false.

    Raises UsageError for what cannot be done, MissingExtraError without PyTorch, InfeasibleError where the switch refuses,
    RanksFailedError where ranks differ or go missing, or no switch answers.
    """
    if link_rate is not None and link is not None:
        raise UsageError("link_rate and link both describe the emulated link", remedy="give one of them")
    if link_rate is not None and not link_rate > 0:
        raise UsageError(f"a link of {link_rate:g} B/s carries nothing", remedy="link_rate: bytes a second, above 0")
    if accumulate < 1 or warmup < 1:
        raise UsageError("accumulate and warmup are at least 1", where=f"accumulate {accumulate}, warmup {warmup}")
    link = profile.LinkTable((1.0,), (1 / link_rate,)) if link_rate is not None else link
    _require_one_transport(link, aggregate, switch, key_file)
    joined = team(model, group, timeout_s)
    same_everywhere(joined, repr((aggregate, switch, error_feedback)).encode(), "aggregate")
    sums = join_switch(joined, aggregate, switch, key_file, error_feedback, timeout_s) if aggregate else None
    emulated = EmulatedLink(link, tuple(range(joined.world))) if link is not None else None
    exchange = GradientExchange(
        torch,
        joined.group,
        joined.rank,
        joined.wires,
        link=emulated,
        sums=sums,
        average=average,
        timeout_s=timeout_s,
        check_every=check_every,
    )
    try:
        return Live(
            model,
            optimizer,
            policy,
            joined,
            exchange,
            accumulate=accumulate,
            costs=costs or link,
            knobs=knobs or {},
            warmup=warmup,
        )
    except BaseException:
        if sums is not None:
            sums.close()
        raise


def _require_one_transport(
    link: Costs | None, aggregate: str | None, switch: str | None, key_file: str | Path | None
) -> None:
    """Raise UsageError where gradients would go two ways, or a switch is named that nothing goes through."""
    if aggregate and link is not None:
        raise UsageError(
            "an emulated link carries all-reduces of the group, not what goes through a switch",
            remedy="aggregate without link_rate and link; a lab for a real link: ringwright lab switch:2,rate=100Mb/s",
        )
    if switch is not None and not aggregate:
        raise UsageError(f"nothing goes through the switch at {switch}", remedy="aggregate='switchml'")
    if key_file is not None and switch is None:
        raise UsageError(
            "a key is for a switch that runs already; one that rank 0 starts has its own",
            where=str(key_file),
            remedy="switch='HOST:PORT' with it, or leave key_file out",
        )


class Live:
    """A schedule at work; ``close()`` it, or use it as a context manager."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: Policy | Callable[..., Workload],
        team: Team,
        exchange: GradientExchange,
        *,
        accumulate: int,
        costs: Costs | None,
        knobs: Mapping[str, Any],
        warmup: int,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.rank, self.world = team.rank, team.world
        self._policy, self._costs, self._knobs, self._warm_left = policy, costs, knobs, warmup
        self._team, self._exchange, self._accumulate = team, exchange, accumulate
        self._parameters: dict[str, Any] = team.parameters
        self._names = {id(each): name for name, each in self._parameters.items()}
        self._phase, self._round, self._micro = IDLE, 0, 0
        self._silent = 0  # depth of no_sync()
        self._fired: set[str] = set()
        self._put: dict[str, tuple[Any, int]] = {}
        self._used_here: set[str] = set()
        self._forwards = 0
        self._closed = False
        self._clock = StepTimer()
        self._record = Record(type(model).__name__, team, self._clock, exchange)
        self._uses = Uses(model, self._names)
        self._later = Later(exchange, self._parameters, optimizer, self._clock)
        self._hooks = Hooks(model, optimizer)
        first = self._first_workload()
        if isinstance(policy, Policy):
            refuse(replace(first, policy=policy))  # before anything is trained
        self._adopt(plan(first, costs or LinkCosts(profile.RATE)))
        self._patch()

    # ------------------------------------------------------------------------------------------------------------ plans
    def _first_workload(self) -> Workload:
        """Return the model as it is registered, each gradient sent as it comes, a barrier at the end."""
        named = {name: [name] for name in self._parameters}
        layers, backward = profile.layers(named, [], self._team.described)
        made = profile.workload("warm-up", layers, backward, self._team.described, self.world)
        return made.with_policy("warm-up", boundary="barrier", agreement="leader")

    def _adopt(self, made: LivePlan) -> None:
        self.plan = made
        self._layered = made.layered
        dtypes = {name: each.dtype for name, each in self._parameters.items()}
        self._exchange.adopt(made, self._round + 1, dtypes)
        same_everywhere(self._team, made.digest(), "plan of operations")

    def _warmed(self) -> None:
        """Ask the scheduler with what rank 0 has measured, and follow it from now on; all ranks are here."""
        self._uses.close()
        waits = self._team.gather(self._uses.waits)  # ranks may take different branches: each waits for all of them
        for module, names in [each for theirs in waits for each in theirs.items()]:
            self._uses.waits.setdefault(module, {}).update(names)
        drawn: Workload = self._team.share(self.workload() if self.rank == 0 else None)
        costs = self._team.share(self._costs or self.costs() if self.rank == 0 else None)
        if isinstance(self._policy, Policy):
            made = replace(drawn, policy=self._policy)
        else:
            made = self._policy(drawn, costs, **self._knobs)
        new = plan(made, costs, drawn)
        if new.layered:
            updates.refuse(self.optimizer, list(self._parameters.values()))
            guards.guard(self)
        self._adopt(new)
        self._measure()
        self._clock.restart()

    # ------------------------------------------------------------------------------------------------------------ hooks
    def _patch(self) -> None:
        self._step = self._hooks.steps(self.step)
        self._hooks.zeroes(self._zero_grad)
        self._hooks.gradients(self._parameters, self._gradient)
        self._hooks.forward(self._forward_begins, self._clock.forward_ends)
        self._hooks.states(self.flush)
        self._measure()

    def _measure(self) -> None:
        """Have each module that needs parameters wait for them, and say when it begins."""
        self._hooks.waits(self._uses.waits, self._before)
        self._record.named = self._uses.layers()

    def _forward_begins(self) -> None:
        if torch.is_grad_enabled():
            self._forwards += 1
            if self._phase == OPEN:
                self._abandoned()
            self._clock.forward_begins(self._round + 1)

    def _before(self, layer: str, names: tuple[str, ...]) -> None:
        """Run before a module's forward: bring its parameters up to date."""
        begun_s = self._clock.segment_ends()
        owed = [name for name in names if self._later.owes(name)]
        if owed:
            self._later.apply(owed, layer)
        self._clock.segment_begins(layer, begun_s)

    def _abandoned(self) -> None:
        ready, of = len(self._put), len(self._parameters)
        what = f"the last backward pass did not end: {ready} of {of} gradients were ready"
        self._exchange.control.fail(
            what, "", "mend the exception in backward(); the other ranks cannot go on without it"
        )
        raise RanksFailedError(f"rank {self.rank}: {what}", remedy="mend the exception in backward()")

    def _gradient(self, name: str, parameter: Any) -> None:
        """Run when autograd has finished a parameter's gradient."""
        self._exchange.check()
        if self._silenced:
            self._fired.add(name)
            self._count_micro()
            return
        if self._later.owes(name):
            raise UsageError(
                f"{name} has a new gradient, but no module waited for its last update: old values were used",
                remedy="live.flush() before using a parameter outside of the modules that used it in the first steps",
            )
        if self._phase != OPEN:
            self._open()
        elif name in self._put:
            self._abandoned()
        self._clock.ready(name)
        self._fired.add(name)
        self._send(name, parameter.grad)

    @property
    def _silenced(self) -> bool:
        return self._silent > 0 or (self._micro + 1) % self._accumulate != 0

    def _count_micro(self) -> None:
        """Count a backward pass that only accumulates, once."""
        if self._silent == 0 and not self._clock.counting:
            self._clock.counting = True
            torch.autograd.Variable._execution_engine.queue_callback(self._micro_ends)

    def _micro_ends(self) -> None:
        self._micro += 1
        self._clock.counting = False

    def _open(self) -> None:
        if self._phase == ENDED:
            raise UsageError(
                "a second backward() before step(): the gradients of the first are on their way",
                remedy="with live.no_sync(): around all but the last backward, or accumulate=n",
            )
        self._round, self._phase = self._round + 1, OPEN
        self._put, self._used_here = {}, set()
        self._clock.backward_begins()
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def _send(self, name: str, gradient: Any, *, used: bool = True) -> None:
        """Send a gradient; one left from before, of a parameter that was not used here, counts as zero."""
        used = used and gradient is not None
        if used and gradient.is_sparse:
            raise UsageError(f"{name} has a sparse gradient; all-reduce adds dense ones", remedy="sparse=False")
        if used:
            self._used_here.add(name)
        self._put[name] = (gradient, -1 if gradient is None else gradient._version)
        self._exchange.put(self._round, name, gradient if used else None)

    def _backward_ends(self) -> None:
        """Run by autograd when a backward pass is over: what got no gradient here counts as zero."""
        if self._warm_left > 0:
            self._record.named = self._uses.layers()
        self._clock.backward_ends(self._record.named)
        self.flush()
        for name, parameter in self._parameters.items():
            if name not in self._put:
                self._send(name, parameter.grad, used=name in self._fired)
        self._exchange.end(self._round, self._used_here)
        self._fired.clear()
        self._micro += 1
        self._forwards = 0
        self._phase = ENDED
        if not self._layered:
            self.barrier()
        self._clock.settled()

    # ------------------------------------------------------------------------------------------------------- boundaries
    def barrier(self) -> None:
        """Wait for all gradients of this step; they are final then, and step() acts at once."""
        if self._phase != ENDED:
            return
        self._exchange.wait(self._round, self._parameters)
        for name in self._later.used(self._round, set(self._parameters) - self._used_here):
            self._later.write(name, self._put[name][0])
        self._phase = FINAL

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step the optimiser, at the barrier; or mark the step, whose updates come layer by layer."""
        if closure is not None and self._layered:
            raise UsageError(
                "step(closure) needs the updates at once, and a loss of all ranks",
                remedy="a policy whose boundary is the barrier",
            )
        if self._phase == OPEN:
            self._abandoned()
        if self._phase == IDLE and self._forwards and closure is None and not self._silenced:
            self._round, self._phase, self._put, self._used_here = self._round + 1, OPEN, {}, set()
            self._backward_ends()  # no gradient at all on this rank
        if self._phase == ENDED:
            return self._mark()
        self.flush()
        with self._clock.updating("optimizer"):
            loss = self._step(closure) if closure is not None else self._step()
        self._phase = IDLE
        self._clock.step_ends()
        self._warm_left -= 1
        if self._warm_left == 0:
            self._warmed()
        return loss

    def _mark(self) -> None:
        updates.refuse_hooks(self.optimizer)
        for name, (gradient, version) in self._put.items():
            now = self._parameters[name].grad
            if now is not gradient or (now is not None and now._version != version):
                self._refuse("an edit of .grad", name)
        self._later.mark(self._round, {name: gradient for name, (gradient, _) in self._put.items()}, self._used_here)
        self.optimizer._opt_called = True
        self._phase = IDLE
        self._clock.step_ends()

    def flush(self) -> None:
        """Bring all parameters up to date now."""
        self._later.flush()

    def _zero_grad(self, function: Callable[..., Any], set_to_none: bool) -> None:
        if self._phase == ENDED:  # the step is not taken: its gradients go to waste
            self.barrier()
        if self._phase == FINAL:
            self._phase = IDLE
        if self._later.pending is None:
            function(set_to_none=set_to_none)
        else:
            self._later.zero(set_to_none=set_to_none)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulate gradients in backward passes inside."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    def clip(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the gradients' norm between backward() and step(): a barrier, by declaration; returns the norm before."""
        self.barrier()
        norm: torch.Tensor = guards.original("clip_grad_norm_")(self._parameters.values(), max_norm, norm_type)
        return norm

    def refuse_edit(self, parameters: Iterable[Any], what: str) -> None:
        """Raise UsageError if gradients of ``parameters`` are still on their way."""
        if self._layered and self._phase in (OPEN, ENDED):
            mine = next((self._names[id(each)] for each in parameters if id(each) in self._names), None)
            if mine is not None:
                self._refuse(what, mine)

    def _refuse(self, what: str, name: str) -> None:
        self._exchange.control.fail(f"{what} between backward() and step()", "", "see that rank's own message")
        raise UsageError(
            f"{what} between backward() and step() needs all gradients, that of {name} too: it makes a barrier, and the "
            f"policy {self.plan.workload.policy.label} has none",
            remedy="live.clip(max_norm) or live.barrier() before it, or a policy whose boundary is the barrier",
        )

    # --------------------------------------------------------------------------------------------------------- measured
    def workload(self) -> Workload:
        """Return this rank's steps as a Workload, median times by layer, without a policy."""
        return self._record.workload()

    def measured(self) -> dict[str, Any]:
        """Return what ``workload()`` and ``costs()`` are made of as plain data: layers, order, parameters, times, link."""
        return self._record.plain()

    def costs(self) -> profile.LinkTable:
        """Return what pieces of each size took."""
        return self._record.costs()

    def profile(self) -> Trace:
        """Return this rank's last steps as a Trace."""
        return self._record.trace()

    def close(self) -> None:
        """Flush, take all hooks away, and leave the other ranks."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._phase == ENDED:
                self.barrier()
            self.flush()
        finally:
            guards.release(self)
            self._uses.close()
            self._hooks.remove()
            self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            with contextlib.suppress(RanksFailedError):
                self._exchange.control.fail(f"training stopped: {error}", "", "look for the error of that rank")
                self.close()
            return
        self.close()
