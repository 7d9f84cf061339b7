"""Producer identities: the names under which batches are sent, so that one sent twice is stored once.

An identity has one batch under way at a time and numbers its records without gaps. So requests that run at the same
time need one each, and those that follow one another share one: the pool holds no more than ever ran at once. After a
failure nobody can say where an identity stands, and it is never used again.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from dataclasses import dataclass

# Kafka's sequence numbers are 32 bits with the sign left out, and start again at 0.
_SEQUENCES = 1 << 31
_PRODUCER_ID_BITS = 63


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends the next batch, and the number of its first record."""

    producer_id: int
    sequence: int = 0

    def after(self, records: int) -> Identity:
        return Identity(self.producer_id, (self.sequence + records) % _SEQUENCES)


def new_identity() -> Identity:
    return Identity(secrets.randbits(_PRODUCER_ID_BITS) or 1)


class IdentityPool:
    """The identities of one client that are not in use, by topic. Its two methods may be called from any thread."""

    def __init__(self) -> None:
        self._free: defaultdict[str, list[Identity]] = defaultdict(list)

    def take(self, topic: str) -> Identity:
        try:
            return self._free[topic].pop()
        except IndexError:
            return new_identity()

    def give_back(self, topic: str, identity: Identity) -> None:
        self._free[topic].append(identity)
