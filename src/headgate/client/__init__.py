"""Declaring and enqueueing work, and looking after it, over any transport."""
