"""Why a job does not move: from what was seen of it to the guilty rank, the reason and the fix.

`examine` looks at a live job and gives an `Evidence`; `diagnose` is a pure function from that to a
`Diagnosis`; `bundle` keeps both in a file.
"""
