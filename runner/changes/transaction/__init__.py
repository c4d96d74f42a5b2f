"""Transactions: the changes that a command made in a layer are judged, and then applied to the workspace as a whole.

May import what is below `changes`, and its modules, but no other folder of `changes`. Start reading at
`transaction.py`, then `judge.py`, `plan.py` and `apply.py`.
"""
