"""Remembered permissions: which grant covers a question, which grants can be offered, and which ones nearly fit.

The only package beside `policy/decide.py` that creates permits. May import everything else in `policy`. Start reading
at `resolve.py`.
"""
