"""Which hosts a job has, and which ranks each should have. Pure."""
