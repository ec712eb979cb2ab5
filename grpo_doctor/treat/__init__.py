"""From advice to proof: changes of a command are tried in short runs, and kept if they gain.

`decision` and `paired` are pure; `candidates` and `edits` say what can be changed and how; `trial`
runs a command through `grpo-doctor run`, `session` does one thing after the other.
"""
