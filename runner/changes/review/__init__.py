"""Work on a copy of the workspace: the copy, the patch of what changed in it, and its application.

May import `undo/`, `transaction/` and everything below `changes`. Start reading at `session.py`, then
`patch_parser.py` and `apply.py`.
"""
