"""The evidence of several hosts made one, and its verdict said with the hosts' names.

Process numbers repeat from host to host. In joined evidence each process has an identity made of
its host's number and its own (`model.nodes`), and a `Process` says its name with its host.
"""
