"""The sample shop."""
