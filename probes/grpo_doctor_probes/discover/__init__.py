"""Finds the job: every process of it on this host, from a PID, several, or none."""
