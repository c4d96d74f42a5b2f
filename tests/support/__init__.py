"""Modules that several test files use: builders of workspaces and records, servers, terminals and sandboxes under test."""
