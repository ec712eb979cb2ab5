"""Following a run by its run directory: nothing is asked of the job."""
