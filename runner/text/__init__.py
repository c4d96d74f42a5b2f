"""Untrusted text made safe to print, to log and to show to a model; counts and suggestions for error messages.

May import `messages` only. Start reading at `sanitize.py`.
"""
