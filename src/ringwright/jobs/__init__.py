"""Jobs: what a step of a whole job takes on a fabric by each policy, from a model card or a recording.

In: a Workload, a fabric, policies and faults. Out: rows with a step, what is exposed and why, and what would change it.
Start reading: `study`, a step by each policy; `pricing`, what its operations cost; `explained`, where the time goes; `predict`,
the one question of Python's ``simulate``.
"""
