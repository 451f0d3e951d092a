"""How small may the network be? For a workload and a fabric, the least network that keeps the step, simulated at its edge."""
