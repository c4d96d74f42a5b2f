"""Files of the workspace that need protection: secrets, files that other programs run, Git's own files.

May import `inside` and `egress`. Start reading at `protected_paths.py`.
"""
