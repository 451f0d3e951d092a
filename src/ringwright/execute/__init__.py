"""Real ranks: any Program on processes of this machine, over shared memory, sockets, MPI or torch.distributed."""
