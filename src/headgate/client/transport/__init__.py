"""Ways from a client or worker to a server."""
