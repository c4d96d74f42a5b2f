"""`agent batch`: many tasks, each in a process of its own on a copy of its workspace.

May import `launch` and everything below it, but not `ci/`. Its processes run modules of `cli`, which are named in
strings. Start reading at `command.py`.
"""
