"""File operations of the file tools, run confined.

Imports the standard library only. Start reading at `operations.py`.
"""
