"""Whether the job stands, for how long, which cause explains it, and how sure that is. Pure."""
