"""One module per peer, run inside the peer's own environment: what it enqueues with, and its worker.

Only the standard library, `bench.peers.role` and the peer itself are there.
"""
