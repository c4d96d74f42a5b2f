"""`agent batch`: many tasks, each in a process of its own on a copy of its workspace.

May import the other front ends. Start reading at `command.py`.
"""
