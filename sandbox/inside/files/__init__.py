"""File operations of the file tools, run confined.

May import the rest of `inside`, and the standard library. Start reading at `operations.py`.
"""
