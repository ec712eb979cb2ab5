"""Why a job does not move: from the evidence to the culprit, the reason and the fix.

`examine` samples a live job and returns `Evidence`; `diagnose` is a pure function from that to a
`Diagnosis`; `bundle` keeps both in a file.
"""
