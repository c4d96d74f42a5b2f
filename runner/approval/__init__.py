"""Questions to the user: the card that describes an action, the answers, and what is remembered of them.

Front ends implement the `Approver` protocol of `approver.py`, where reading should start. May import `audit` and
everything below it.
"""
