"""Trials of tool servers from the command line: `agent mcp test`, `why`, `call` and `pin`.

Start reading at `trial.py`. May import everything below `frontends`.
"""
