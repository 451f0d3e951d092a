"""Advice: what to change in a job, by how much, and how sure that is. Settings of all layers are tried together, not added.

In: a recording or a model, and what may be changed. Out: at most five changes with their gains, intervals and files; the least
network (`provision`) that keeps a step. Start reading: `advise`, then `search`; `layers`, a file for each kind of setting.
"""
