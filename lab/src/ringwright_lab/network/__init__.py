"""The lab: a fabric built of network namespaces on this machine, real programs as its ranks, and faults by script.

Real sockets, real TCP, rates and faults as asked, and timestamps of each; what it cannot do is go faster than this machine's
cores, and then it says so instead of giving a result.
"""

from __future__ import annotations

from ringwright_lab.network.network import LabNetwork, network
from ringwright_lab.network.verdict import Limit

__all__ = ["LabNetwork", "Limit", "network"]
