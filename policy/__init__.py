"""The policy engine and the shared vocabulary: pure functions over values, without I/O.

Imports nothing else from this project. The parts in import order, highest first: `grants`, `missing_program`,
`evaluation`, `flow`, `decide`, `classify`, `terms`, `permission`, `handlers`, `interpreter`, `languages`, `rules`,
`bash`, `describe`, `toml`, `model`.
Start reading at `evaluation.py`, then `classify.py` and `decide.py`.
"""
