"""Questions to the user: the card that describes an action, the answers, and what is remembered of them.

Front ends implement the `Approver` protocol. May import `audit` and everything below it. Start reading at
`approver.py`, which has the protocol.
"""
