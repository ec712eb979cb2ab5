"""Phases, steps, settings and metrics of trainers that were not written for this tool.

`grpo-doctor run -- swift rlhf ...` puts `startup/` on the path of every Python of the job; its
`sitecustomize` starts `boot` with the first package that has an adapter. It waits for modules that
`adapters` name and wraps functions in them once they are imported. Nothing is imported that the
job does not import itself.

Like the recorder this is a guest: standard library only, and an error in here is counted, never
raised.
"""
