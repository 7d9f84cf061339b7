"""The HTTP gateway: routes, encodings and error replies. It is the only package that knows FastAPI."""
