"""Answers computed from the audit log: statistics, suggested rules, and replay under another policy.

May import the rest of `audit`, and everything below it. Start reading at `stats.py`.
"""
