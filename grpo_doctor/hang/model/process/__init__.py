"""Of one process: what it is, does, moved and is blocked on. Pure."""
