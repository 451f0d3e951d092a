"""Calls: what is asked about one collective call, answered.

In: a call (operation, size, machine, algorithm, faults). Out: rows with a time, its interval, what limits it, what faults cost.
Start reading: `simulate`, a table of sizes and algorithms; `arguments`, what a name and a machine mean; `answers`, which engine
says what; `without_faults`, the healthy answer beside a faulty one.
"""
