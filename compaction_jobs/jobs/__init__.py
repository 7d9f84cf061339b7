"""What each job does, one module each: `run` takes the context and topics, and tells what became of each partition."""
