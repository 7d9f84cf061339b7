"""Consumer groups: their state machine, their members and the offsets they commit."""
