"""Scheduled jobs: schedules, the values of a job, what is due at a time, and their files in the state folder.

`schedule.py` (times), `job.py` (values), `due_plan.py` (what a run does with due times; pure), `store.py` (files and
locks), `due.py` (the jobs to start now, for the resident process).

May import `flow` and the folders below it. Start reading at `job.py`.
"""
