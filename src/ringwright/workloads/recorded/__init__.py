"""From a recording to a Workload: calls and work of one step, the mesh, who waits for whom, classes of ranks."""
