"""Trials of tool servers from the command line: `agent mcp test`, `agent mcp why`, `agent mcp pin`.

Start reading at `trial.py`. May import everything below `frontends`.
"""
