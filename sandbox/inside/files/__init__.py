"""File operations of the file tools, run confined.

Start reading at `operations.py`.
"""
