"""Questions to the user: the card that describes an action, the answers, and the answers that are remembered.

Front ends implement the `Approver` protocol. May import `audit` and everything below it. Start reading at
`approver.py`, which has the protocol.
"""
