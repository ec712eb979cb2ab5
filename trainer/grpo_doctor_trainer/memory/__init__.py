"""Device memory: making room during the rollout, and saying what ran out."""
