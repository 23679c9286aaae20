"""Measures the engine and the server on the machine at hand; `python -m bench --help`."""
