"""Undo of file changes: snapshots before and after actions, and plans that restore them.

Start reading at `recorder.py`, then `plan.py` and `apply.py`.
"""
