"""Changes that actions made to files: `undo/` keeps snapshots and reverts, `review/` works on a copy and makes patches.

May import `gate` and everything below it, but no session and no model. Start reading at `undo/recorder.py` and
`review/session.py`.
"""
