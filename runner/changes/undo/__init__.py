"""Undo of file changes: snapshots before and after actions, and plans that restore them.

May import everything below `changes`. Start reading at `recorder.py`, then `plan.py` and `apply.py`.
"""
