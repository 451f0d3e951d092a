"""Executors: the same work on all cores of this machine, or on an engine that runs already, with the same answer to the bit.

Whatever fans out asks `fan_out` for a `FanOut` and maps a function over what it is given. A kind of engine is a file of
`kinds`. Not to be mixed up with the backends of real ranks, which carry the bytes of one collective.

In: a function that can be imported, and arguments that are data. Out: its results in the order of what was given, and who worked.
Start reading: `fan_out`, then `worker`, then a file of `kinds`.
"""
