"""A listener for Kafka's protocol, so that Kafka's own clients and tools work on topics that are Delta tables.

It stands beside HTTP in the gateway's process, on the same broker and the same groups: `listener` takes connections,
`connection` takes requests and sends their replies in order, `apis` says which handler answers which request, `schemas`
and `wire` turn bytes into messages and back, `records` does so for record batches, and `handlers` know what a request
means. Nothing outside of this package knows Kafka's formats.
"""
