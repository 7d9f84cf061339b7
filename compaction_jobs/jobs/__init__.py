"""What each job does, one module each: `run` takes the context and topics, and returns what became of partitions."""
