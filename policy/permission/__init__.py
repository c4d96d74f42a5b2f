"""Permission rules of users: matching, overlaps, dead rules, and the denial of paths.

May import `handlers` and everything below it. Start reading at `match.py`.
"""
