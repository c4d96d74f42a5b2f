"""Untrusted text made safe to print, to log and to show to a model; counts and suggestions for error messages.

Imports nothing else from `runner`. Start reading at `sanitize.py`.
"""
