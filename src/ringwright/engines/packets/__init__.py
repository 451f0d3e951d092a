"""The packet engine: ports with queues, packets that are lost, marked, paused and sent again, and who slows down for it.

``layout`` puts a program's messages on ports and connections, ``loop`` runs them (``ports``, ``sender``, ``receiver`` and
``control`` are its parts; ``native`` has its compiled twin with the
same answers to the picosecond), ``run`` says what came of it.
"""
