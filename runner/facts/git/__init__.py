"""Readers of Git repositories. No program is run, because a repository can make Git run programs of its own.

Every read is bounded and follows no symbolic link to a file. May import everything below `facts`. Start reading at
`objects.py`.
"""
