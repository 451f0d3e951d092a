"""Schedulers: each a function ``(workload, costs, **knobs) -> workload`` that sets parts of the policy."""
