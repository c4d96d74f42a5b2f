"""Programs that need code beyond their rule file: git, find, tar, curl, shells, wrappers and others.

Loaded only when a script runs such a program. May import `interpreter` and everything below it. Start reading at
`registry.py`.
"""
