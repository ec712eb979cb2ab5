"""What a job is and waits for: processes, recordings, devices, and the graph of waits. Pure."""
