"""Systems that send first what is needed first."""
