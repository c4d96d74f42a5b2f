"""Shortening of long conversations so that they fit the context window of a model.

The session file keeps the whole conversation; only what is sent gets shorter. May import `context/`, the budget and the
model access of `engine`, and everything below `engine`. Start reading at `view.py`.
"""
