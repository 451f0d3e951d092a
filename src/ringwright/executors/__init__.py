"""Executors: the same work on all cores of this machine, or on an engine that runs already, with the same answer to the bit.

What it is: one seam. Whatever fans out asks ``fan_out`` for a ``FanOut`` and maps a function over what it is given.
In: a module's function, arguments of plain data, spellings, paths and small tables; who executes (``local``, ``dask://...``).
Out: the results in the order of what was given, and an account of who worked.
Start reading at ``fan_out.FanOut.map``; a kind of engine is a file in ``kinds/``, whose listing is the registry.
Not to be mixed up with the backends of real ranks (``execute``), which carry bytes between the processes of one collective.
"""
