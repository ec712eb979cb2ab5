"""Flight-recorder dumps with a known culprit: simulated ones of every version, and real ones."""
