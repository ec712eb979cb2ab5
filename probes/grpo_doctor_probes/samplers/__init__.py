"""Samplers: what the GPUs, the host and the ranks were doing, ten times a second.

They run in the supervisor process outside the job, never inside it: a job that holds the GIL, hangs
or dies must not silence them. `Sampling` is the whole interface for a caller; a new kind of sample
is a `Source`. The file they write is described in `grpo_doctor_probes.samplers.file`.
"""
