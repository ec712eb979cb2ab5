"""Next to the job: /proc, cgroups, the kernel log and span files, read within limits."""
