"""The JSON protocol: events as lines on standard output, requests as lines on standard input.

May import `plain/` and everything below it. Start reading at `driver.py`; `docs/guide/embedding.md` describes the
protocol.
"""
