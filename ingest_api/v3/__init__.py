"""Confluent's REST API v3 over the same broker that v2 stands on: its paths, resources with links, and error codes.

`catalogue` writes resources, `errors` says which code an error becomes, and the other modules are paths.
"""
