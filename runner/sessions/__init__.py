"""Session files: an append-only tree of JSON lines that can be resumed, forked, rewound and exported.

May import `approval` and everything below it. Start reading at `journal.py`.
"""
