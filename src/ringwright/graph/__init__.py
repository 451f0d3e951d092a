"""Graph: the operators of a training step, and what may be done to them without changing what they compute.

In: a Workload with its values. Out: a Workload that computes the same in another order, cut, or with less memory.
Start reading: `algebra`, rules as one decorated function each; `pipelines`, in which order a device runs its stages; `memory`,
what a step holds; `frameworks`, what the program that trains is told of all this.
"""
