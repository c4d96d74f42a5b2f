"""Settings from all layers: packaged, system, user, project, local, environment and flags.

`trust/` decides what a repository may change, `agentfiles/` reads instructions, skills and commands. May import
`stderr` and everything below it. Start reading at `schema.py` (the table of all keys), then `load.py`.
"""

from runner.config.load import load as load
from runner.config.load import shipped as shipped
from runner.config.settings import ConfigError as ConfigError
from runner.config.settings import Settings as Settings
