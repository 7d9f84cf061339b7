"""The HTTP gateway: it turns requests into appends and fetches of one Broker, and their outcomes into replies.

Owns paths, media types, status codes and everything else that is HTTP, and is the only package that knows FastAPI. It
promises that a refused request changed nothing and says why. It must not know how topics are kept.

The way of a request: `door` (limits, log, metrics) → `routes` → `bodies` and `encoding` → the broker → `encoding`.
"""
