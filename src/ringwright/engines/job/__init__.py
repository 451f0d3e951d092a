"""The engine of whole jobs: list scheduling of tasks and operations over streams, queues and shared links."""
