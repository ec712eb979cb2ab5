"""Who waits for whom, and for whom in the end. Pure."""
