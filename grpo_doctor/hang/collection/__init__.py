"""Looking at a live job until there is enough to reason about."""
