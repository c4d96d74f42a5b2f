"""The Linux sandbox: helper processes in namespaces, confined by Landlock and seccomp.

May import `workspace` and everything below it. Start reading at `backend.py`, then `plan_builder.py` (from terms to
mounts) and `helper_process.py`.
"""
