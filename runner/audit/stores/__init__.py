"""Stores of the audit log: SQLite files and PostgreSQL databases behind one protocol.

Imports only the chain of records from `runner.audit`. Start reading at `runner/audit/chain.py`, the protocol.
"""
