"""The HTTP side."""
