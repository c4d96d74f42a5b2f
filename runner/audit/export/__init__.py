"""The record in the forms that other programs and people read: one module for each."""
