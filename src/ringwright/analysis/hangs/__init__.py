"""Who hung a job: how far each rank got, who waits for whom, who disagreed, who died first."""
