"""Rollouts with vLLM, and how the policy's weights get there."""
