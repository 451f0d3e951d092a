"""Formats: what others write, read here, and what others read, written here.

In: files, folders and streams; or our nouns. Out: a Trace, a Program, a Topology, a Workload; or files.
Start reading: `read.kinds`, a light file for each kind of recording; `read.read`, the way in; `write`, a file for each export.
"""
