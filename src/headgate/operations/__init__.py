"""One file per verb of the protocol: what a request means."""
