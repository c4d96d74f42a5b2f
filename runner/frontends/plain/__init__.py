"""The line-based front end, for pipes, dumb terminals and screen readers.

May import `slash/`, `terminal/` and the packages below `frontends`. Start reading at `repl.py`.
"""
