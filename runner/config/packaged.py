"""Settings that ringfence is shipped with: the packaged profile and the packaged rules of commands."""

import os

import policy
import profiles
from policy.model.verdict import Problem
from policy.rules.rule_file import RuleError
from policy.rules.rulebook import RuleBook
from policy.toml.profile import ProfileError, parse_profile
from runner.config.read_file import ConfigError
from runner.config.settings import Settings

PACKAGED = "profiles/default.toml"


def packaged() -> Settings:
    """What we ship. It lies beside our code in every kind of installation; reading it must not cost an import."""
    try:
        profile = parse_profile(packaged_text(), PACKAGED)
        folder = os.path.join(os.path.dirname(str(policy.__file__)), "commands")
        names = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
        files = {name: _shipped(policy.__file__, f"commands/{name}") for name in names}
        rules = RuleBook.from_files(files)
    except (ProfileError, RuleError) as error:
        raise ConfigError(error.problem) from None
    except OSError as error:
        raise ConfigError(
            Problem(
                "this installation is incomplete",
                f"`{error.filename}` cannot be read: {(error.strerror or 'unknown reason').lower()}",
                "install ringfence again",
            )
        ) from None
    return Settings(profile=profile, rules=rules, sources=(PACKAGED,))


def packaged_text() -> str:
    """The profile that we ship, as it is written."""
    return _shipped(profiles.__file__, "default.toml")


def _shipped(package: str | None, name: str) -> str:
    with open(os.path.join(os.path.dirname(str(package)), name), encoding="utf-8") as file:
        return file.read()
