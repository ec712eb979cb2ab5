"""Looks at the processes of a job from outside, gently: counters, stacks, what calls wait for."""
