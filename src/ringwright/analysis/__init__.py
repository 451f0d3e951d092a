"""From a Trace to frames and plain objects; nothing here prints or draws.

In: a Trace. Out: the summary object and its parts: hangs, slow ranks, exposed communication, traffic, differences, gates.
Start reading: `summary`, which asks each part once; `first_answer`, what is said first; `culprits`, every rule that names one.
"""
