"""One grid point of a sweep: what is run, where, and with which fault; its key names its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ringwright.ground.errors import UsageError

ROLES = ("dp", "tp", "pp", "ep")
MORE = ("capacity",)  # of experts, beside the ranks
# Settings that keys of older sweeps do not hold, with what they were then.
LATER: dict[str, str | int] = {"backend": "gloo", "nodes": 1, "env": "", "library": ""}


@dataclass(frozen=True)
class GridPoint:
    """A run. ``world`` above 0 is a fake job of so many ranks in one process; ``fabric`` "" is this machine's loopback.

    ``parallel`` is a form with the ranks of its roles: ``ddp:dp=2``, ``tp+fsdp:tp=2,dp=2``. ``steps`` are iterations, or decoded
    tokens; the fault script's clock starts after ``warm`` of them. ``dims`` replaces dimensions of the model's card.

    ``backend`` is the library between ranks; all but gloo are simulated by the model of ``library`` with the settings of ``env``,
    on ``nodes`` nodes of ``fabric``.
    """

    model: str
    size: str = "tiny"
    dims: str = ""
    parallel: str = "none"
    mode: str = "training"
    batch: int = 2
    sequence: int = 32
    micro_batches: int = 1
    dtype: str = "float32"
    bucket_cap_mb: float | None = None
    steps: int = 4
    warm: int = 2
    world: int = 0
    fabric: str = ""
    fault: str = ""
    tcp: str = "reno"
    seed: int = 0
    backend: str = "gloo"
    nodes: int = 1
    env: str = ""
    library: str = ""

    @property
    def ground(self) -> str:
        """What its figures rest on: "measured" on real ranks, "counted" in a fake job, "simulated" by a library's model."""
        return "simulated" if self.backend != "gloo" else "counted" if self.world else "measured"

    @property
    def key(self) -> str:
        """A name that only this configuration has, and a person can read."""
        said = {name: value for name, value in asdict(self).items() if name not in LATER or value != LATER[name]}
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:10]
        words = [self.model, self.size, self.parallel.replace(":", "-").replace(",", "-").replace("=", ""), self.mode]
        return "_".join([*words, digest])

    @property
    def spread(self) -> dict[str, int | str]:
        """The parallel form and the ranks of each role, as rank programs and formulas take them."""
        form, _, rest = self.parallel.partition(":")
        fields: dict[str, int | str] = {"form": form}
        for part in filter(None, rest.split(",")):
            role, _, number = part.partition("=")
            if role not in (*ROLES, *MORE) or not number.isdecimal() or not 1 <= int(number) <= 1 << 20:
                raise UsageError(f"'{self.parallel}' is no parallel form", remedy="ddp:dp=2, or tp+fsdp:tp=2,dp=2")
            fields[role] = int(number)
        return fields

    @property
    def ranks(self) -> int:
        """How many ranks the form needs."""
        total = 1
        for role in ROLES:
            total *= int(self.spread.get(role, 1))
        return total

    @property
    def changed(self) -> dict[str, int]:
        """The dimensions that ``dims`` replaces."""
        changes = {}
        for part in filter(None, self.dims.split(",")):
            name, _, number = part.partition("=")
            if not number.isdecimal():
                raise UsageError(f"'{self.dims}' are no dimensions", remedy="dims = 'layers=4,hidden=256'")
            changes[name] = int(number)
        return changes

    def row(self) -> dict[str, Any]:
        """Return the configuration as columns of a table."""
        roles = {role: self.spread.get(role, 1) for role in ROLES}
        return {
            "cell": self.key,
            **asdict(self),
            "form": self.spread["form"],
            **roles,
            "ranks": self.world or self.ranks,
            "ground": self.ground,
        }


def point(settings: Mapping[str, Any]) -> GridPoint:
    """Return the grid point of some settings; UsageError for a setting that does not exist or is of another type."""
    kinds = {each.name: each for each in fields(GridPoint)}
    strange = sorted(set(settings) - set(kinds))
    if strange:
        raise UsageError(f"a cell has no setting '{strange[0]}'", remedy=f"one of: {', '.join(kinds)}")
    if "model" not in settings:
        raise UsageError("a cell needs a model", remedy='model = ["llama", "vgg"] below [axes]')
    for name, value in settings.items():
        default = kinds[name].default
        wanted = (float, int, type(None)) if name == "bucket_cap_mb" else (int,) if isinstance(default, int) else (str,)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UsageError(f"{name} = {value!r} is not {' or '.join(kind.__name__ for kind in wanted)}")
    made = GridPoint(**settings)
    _ = made.spread, made.changed  # refused here, not in the middle of the sweep
    return made
