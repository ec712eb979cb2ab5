"""NVML, called in a process of its own: a call into a driver may never return."""
