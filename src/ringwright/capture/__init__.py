"""Beside a live job: what records it, what follows its files, and what is missing where nothing is seen.

In: a command, or files that grow. Out: a folder that `formats.sources` reads, looks at a running job, and remedies.
Start reading: `record`; `recorder`, what runs inside the job; `doctor`; `live.following`.
"""
