"""Changes that actions made to files: `undo/` keeps snapshots and reverts, `review/` works on a copy and makes patches,
and `transaction/` applies what a command changed in a layer.

May import `gate` and everything below it, but no session and no model. Start reading at `undo/recorder.py`,
`review/session.py` and `transaction/transaction.py`.
"""
