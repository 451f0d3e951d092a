"""Formats: what others write, read here, and what others read, written here.

In: files, folders and streams; or our nouns. Out: a Trace, a Program, a Topology, a Workload; or files.
Start reading: `sources.kinds`, a light file for each kind of recording; `sources`, the way in; `exports`, a file for each
export; `settings`, formats that are both.
"""
