"""`headgate doctor`: what is wrong with an installation, and what to do about it.

`facts` asks the server; the rules in `server`, `queues`, `keys` and `packages` judge what it said and ask nobody.
"""
