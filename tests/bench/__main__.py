"""`python -m tests.bench [name ...]`: all benchmarks, or the ones that are named."""

from __future__ import annotations

import argparse

from lakelog.interpreter import set_for_serving
from tests.bench import (
    append,
    compaction,
    consumers,
    fetch,
    gateway,
    groups,
    growth,
    kafka,
    latency,
    memory,
    scan,
    visible,
)

BENCHMARKS = {
    "append": append.run,
    "fetch": fetch.run,
    "latency": latency.run,
    "growth": growth.run,
    "memory": memory.run,
    "gateway": gateway.run,
    "kafka": kafka.run,
    "consumers": consumers.run,
    "groups": groups.run,
    "scan": scan.run,
    "visible": visible.run,
    "compaction": compaction.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(BENCHMARKS)}")
    names: list[str] = parser.parse_args().names
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    set_for_serving()  # as the gateway is
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
