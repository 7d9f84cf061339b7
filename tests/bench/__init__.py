"""Benchmarks: figures and ratios, printed and never asserted. `make bench`, or `make bench ARGS="append fetch"`."""
