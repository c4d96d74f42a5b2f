"""The version, as a constant: `agent --version` must not read package metadata to print one line."""

VERSION = "0.1.0"
