"""The ranks: their process group, and the engine that turns losses into weights."""
