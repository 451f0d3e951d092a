"""Frameworks: what the program that trains is told of a job, its parallel form, what overlaps, what is gathered ahead."""
