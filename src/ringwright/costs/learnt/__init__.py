"""What measured tables of many systems say about a call of NCCL on a machine that nobody here measured, and how far to trust it.

One model: the closed form of ``costs.nccl.timing`` with the usual numbers of the machine's transports, times a factor that was
learnt from open tables of real systems. The factor is a Gaussian process in the logarithm of the time, a sum of parts: some all
systems share (by transport, operation, size and nodes), others a system, a setting or a table has to itself. Tables of one's own
move the answer from what systems share to the machine at hand; without one, what systems differ by makes the interval wide.
"""

from ringwright.costs.learnt.call import LEARNT_OPS, LibraryCall, of_calls
from ringwright.costs.learnt.prior import Prior, shipped
from ringwright.costs.learnt.trusted import Expected, expected, rising
from ringwright.costs.transports import TRANSPORTS, Transport

__all__ = [
    "LEARNT_OPS",
    "TRANSPORTS",
    "Expected",
    "LibraryCall",
    "Prior",
    "Transport",
    "expected",
    "of_calls",
    "rising",
    "shipped",
]
