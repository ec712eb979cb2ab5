"""Where each rank stands in each process group, and who deviates. Free of the order of files."""
