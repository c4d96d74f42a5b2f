"""`agent ci`: an unattended run in a pipeline, on an untrusted prompt.

May import `launch` and everything below it, but not `batch/`. Start reading at `run.py`.
"""
