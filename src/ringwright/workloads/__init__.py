"""Workloads: what real models are made of, and the collectives that training and serving them must issue.

In: a model card and a parallel form, or a recording. Out: a Workload: tasks, payloads and when they are ready in one step.
Start reading: `job`; `families`, a file for each kind of model; `recorded.build`, a Workload of a Trace.
"""
