"""How Python's interpreter is set for a process whose business is the log: the gateway, and what measures it."""

from __future__ import annotations

import gc
import sys

# Threads that encode take turns with the event loop at the interpreter: with the default of 5 ms a request would wait
# for several of those turns.
SWITCH_SECONDS = 0.0005
# A request makes hundreds of objects and no cycles: the collector need not look after every second one.
GC_OBJECTS = 50_000


def set_for_serving() -> None:
    """Call it once everything is imported: what is there by then stays, and the collector passes over it."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(GC_OBJECTS)
    gc.collect()
    gc.freeze()
