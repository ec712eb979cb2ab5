"""Generated tasks, for runs without a dataset."""
