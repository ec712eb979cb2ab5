"""Jobs under NCCL's rules, without a GPU: hosts run ahead of device streams, and faults happen
where they do in life. `python -m tests.nccl_rules` says how often their dumps alone name the
culprits.
"""
