"""Remembered permissions on disk: their JSON form, the file with its lock, and their text.

The meaning of a grant is decided in `policy/grants/`. May import everything below `gate`. Start reading at `store.py`.
"""
