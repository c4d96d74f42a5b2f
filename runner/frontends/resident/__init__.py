"""The resident process, `agent serve`: it has loaded the program, runs warm commands, and starts processes that last.

May import everything below `frontends`, and the front ends that it runs. Start reading at `process.py`.
"""
