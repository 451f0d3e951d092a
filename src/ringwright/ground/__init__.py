"""Ground: what every room stands on, and nothing of the field: units, errors, names, files.

In: what a person typed, what a folder holds. Out: SI floats, errors with a remedy, knobs, drafts that become files whole.
Start reading: `errors`, the one tree of what can go wrong; `units`, one way to read and print a size or a time; `knobs`, what a
user may set on a system; `drafts`, the one gate out, and `saved_trace`, the gate in for files that we wrote ourselves.
"""
