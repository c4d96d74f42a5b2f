"""The task list of a session: tasks with states, dependencies and owners, which the agents of the session share.

May import `config` and the folders below it. Start reading at `task_list.py`.
"""
