"""Records between HTTP and the log: bodies to columns, columns to bodies. Pure: no I/O, no broker, no request."""
