"""What the operations of a job cost on a fabric: whose they are, what they share, and what one call of the verb says."""
