"""The mathematics of GRPO: log-probs, advantages, the loss and what it reports."""
