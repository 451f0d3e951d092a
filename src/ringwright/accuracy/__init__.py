"""Accuracy: simulated times beside measured tables, call by call and step by step.

In: tables that somebody measured. Out: a row for each measurement with the time that was predicted, its interval, and why a row
could not be placed. Nothing here is fitted to what it judges.
Start reading: `judged`.
"""
