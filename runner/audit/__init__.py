"""The audit log: hash-chained records of every decision and outcome, and their verification.

`stores/` keeps records, `reports/` computes answers from them, `export/` writes other formats. May import `changes` and
everything below it. Start reading at `log.py` and `chain.py`.
"""
