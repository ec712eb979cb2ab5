"""The memory of other processes: mappings, bytes, and where a library has its symbols."""
