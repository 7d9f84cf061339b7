"""Consumers over HTTP: instances that a client makes, subscribes, polls and deletes, as in Confluent REST Proxy v2."""
