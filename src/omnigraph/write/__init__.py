"""Writes: build and validate rows before anything is stored."""
