"""Importers of permissions from other agents: one reader for each product, with one result type.

May import everything below `gate`. Start reading at `result.py`.
"""
