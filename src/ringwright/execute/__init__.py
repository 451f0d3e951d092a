"""Real ranks: any Program on processes of this machine, over shared memory, sockets, MPI or torch.distributed.

In: a Program and a backend. Out: results compared with the interpreter, times, a Trace; `switched`, a switch that adds.
Start reading: `plan`, what each node does; `rank`, the program of one; `launch`.
"""
