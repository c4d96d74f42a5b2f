"""Strict reading of TOML: every error names the file, the line, and the nearest known key.

May import `policy.model`. Start reading at `schema.py`.
"""
