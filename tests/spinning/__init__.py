"""Ranks that behave from outside as those of NCCL jobs do, on a machine without a GPU.

A collective returns at once; the host runs ahead and then spins in a C function until a stand-in
device, a file that all ranks map, has finished what it was given.
"""
