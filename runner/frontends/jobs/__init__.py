"""Scheduled jobs: their creation, one run of a job without a user, and their rows and JSON objects.

`create.py` (from options), `job_run.py` (a run, with its summary), `view.py` (texts and JSON for `agent jobs`).

May import `launch` and the folders below it. Start reading at `job_run.py`.
"""
