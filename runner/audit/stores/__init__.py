"""Stores of the audit log: SQLite files and PostgreSQL databases behind one protocol.

May import the chain of records and the names of earlier versions (`legacy`) from `runner.audit`, and `text`. Start
reading at `runner/audit/chain.py`, the protocol.
"""
