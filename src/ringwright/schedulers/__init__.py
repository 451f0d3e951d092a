"""Schedulers: each a function ``(workload, costs, **knobs) -> workload`` that sets parts of the policy.

In: a Workload and what its operations cost. Out: the Workload with another order, cut or rewrite of its communication.
Start reading: `fifo.pytorch_ddp`, then `priority.p3`; `compose`, two schedulers as one.
"""
