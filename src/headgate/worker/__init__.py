"""Running jobs: fetch, run, answer, and leave nothing behind."""
