"""Kafka's record batches (magic 2) from bytes to columns and back, without a step of Python per record."""
