"""The paths of the gateway, a module each for produce, fetch, streams, topics, administration and the process."""
