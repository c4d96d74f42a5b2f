"""Answers computed from the audit log: statistics, suggested rules, and replay under another policy.

May import the audit log, the gate and everything below it. Start reading at `stats.py`.
"""
