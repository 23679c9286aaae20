"""The engine of one process: memory decides, SQLite remembers."""
