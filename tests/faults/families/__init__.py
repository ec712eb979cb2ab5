"""The faults, one module per family; each registers its own."""
