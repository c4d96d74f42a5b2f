"""The sandbox: takes a Permit, returns an Outcome, and grants exactly the rights of its Terms.

May import `policy`. Every helper starts here, so this file imports nothing. Start reading at `backend.py`, then
`linux/backend.py`.
"""
