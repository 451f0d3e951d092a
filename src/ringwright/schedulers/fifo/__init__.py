"""Systems that send gradients in the order in which they become ready."""
