"""Importers of permissions from other agents: one reader for each product, with one result type.

Start reading at `result.py`.
"""
