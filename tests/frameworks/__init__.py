"""Real GRPO jobs of TRL, ms-swift, verl and OpenRLHF on two CPU ranks, and what `attach` says."""
