"""Files of the workspace that need protection: secrets, files that other programs run, Git's own files.

May import `inside`, `sandbox.backend`, and `languages` and `model` of `policy`. Start reading at `protected_paths.py`.
"""
