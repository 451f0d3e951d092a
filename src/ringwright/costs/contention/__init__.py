"""Communication beside computation on one GPU: what each takes alone, and what both take together.

Fitted to one H100; another GPU is predicted from its own number of multiprocessors, memory and clocks
(docs/explanation/contention.md).
"""
