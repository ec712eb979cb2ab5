"""The advice of reports on real TRL and ms-swift jobs, applied as it is printed."""
