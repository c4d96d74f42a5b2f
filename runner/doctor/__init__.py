"""`agent doctor`: checks of the machine, the configuration and the audit log, each with a remedy.

May import `audit` and everything below it. Start reading at `report.py`.
"""
