"""Bundles: folders with skills, commands, sub-agents, hooks and tool servers, pinned by hash.

A bundle is used as an exact copy of what the user was shown. The package may import `facts`, `config` and what is
below. Start reading at `pinned.py`.
"""
