"""Settings from all their layers. `keys.py` is the one table of what may be set; everything else reads it."""

from runner.config.load import load as load
from runner.config.load import shipped as shipped
from runner.config.settings import Settings as Settings
from runner.settings_file import ConfigError as ConfigError
