"""What the verbs with real ranks on a network of namespaces have in common: faults, congestion control, patience."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options


@Parameter(name="*", group=options.FAULTS)
@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """What goes wrong in the lab, and for how long ranks are waited for."""

    fault: Annotated[
        tuple[str, ...],
        Parameter(help="A line of the fault script, such as 'link rank3 loss 1% at 2s for 1s'; may be repeated."),
    ] = ()
    seed: Annotated[int, Parameter(help="Draws what the script leaves open, and which frames are lost.")] = 0
    tcp: Annotated[str, Parameter(help="Congestion control: reno, cubic or bbr.")] = "reno"
    timeout: Annotated[
        str, Parameter(help="Without any progress, or in the lab in all, for so long ranks are ended.")
    ] = "60s"


AS_IT_IS = NetworkOptions()
