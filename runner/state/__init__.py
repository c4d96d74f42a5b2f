"""Folders and files of ringfence itself: their paths, locked JSON files, stored outputs, the identity of a workspace.

May import `problems`, `text`, `policy` and `sandbox.inside`. Start reading at `paths.py`.
"""
