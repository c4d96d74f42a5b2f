"""`agent ci`: an unattended run in a pipeline, on an untrusted prompt.

May import the other front ends. Start reading at `run.py`.
"""
