"""Does `grpo-doctor treat` find what slows a job down, and keep nothing where nothing does."""
