"""Random but valid histories of a topic's table: the commits that brokers and jobs would make."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from lakelog.config import TopicConfig
from lakelog.delta import drafts
from lakelog.delta.actions import Action, decode_commit, encode_commit
from lakelog.delta.state import TableState
from lakelog.delta.table import Draft
from lakelog.log.producers import OffsetRange, ProducerBatch, WrittenBatch
from lakelog.model.segment import segment_path
from tests.unit.segments import segment


@dataclass
class History:
    """The state that followed every commit, and the commits."""

    state: TableState = field(default_factory=TableState)
    commits: list[list[Action]] = field(default_factory=list)

    def commit(self, draft: Draft) -> None:
        assert draft.holds(self.state)
        actions = decode_commit(encode_commit(draft.actions))
        self.commits.append(actions)
        self.state.apply(self.state.version + 1, actions)

    @property
    def now_ms(self) -> int:
        return 1_000 + len(self.commits)

    def create(self, partitions: int) -> None:
        self.commit(drafts.create(partitions, TopicConfig.parse({}), self.state, self.now_ms))

    def append(self, partition: int, count: int, producer: int | None = None) -> None:
        end = self.state.partitions[partition].next_offset
        commit_id = f"c{len(self.commits)}"
        new = segment(end, end + count, partition=partition, times_us=(end * 1000, end * 1000 + 1), unique=commit_id)
        if producer is not None:
            last = self.state.producers.of(ProducerBatch(producer, 0, 0))
            sequence = last[-1].next_sequence if last else 0
            ranges = (OffsetRange(partition, end, count),)
            ends = self.state.next_offsets
            batch = WrittenBatch(producer, -1, 0, sequence, count, self.now_ms, ranges, len(ends), sum(ends))
            new = drafts.tagged(new, [batch])
        basis = drafts.Basis(self.state.metadata, {partition: end}, {})
        self.commit(drafts.append(commit_id, [new], basis, self.now_ms))

    def merge(self, partition: int, files: int) -> None:
        old = self.state.partitions[partition].segments[-files:]
        if len(old) < 2:
            return
        commit_id = f"m{len(self.commits)}"
        base, end = old[0].base_offset, old[-1].end_offset
        new = segment(base, end, partition=partition, tier=1, times_us=(base * 1000, end * 1000), unique=commit_id)
        assert new.path == segment_path(partition, base, commit_id)
        new.tags.update(drafts.carried_notes(old, self.state.producers))
        self.commit(drafts.rewrite(commit_id, "MERGE TAIL", old, [new], self.state, self.now_ms))

    def expire(self, partition: int, share: float) -> None:
        """Move the log start up by a share of what there is."""
        marks = self.state.partitions[partition]
        start = marks.log_start_offset + int((marks.next_offset - marks.log_start_offset) * share)
        below = [each for each in marks.segments if each.end_offset <= start]
        self.commit(drafts.expire("DELETE RECORDS", {partition: start}, below, self.state, self.now_ms))

    def alter(self, retention_ms: int) -> None:
        config = self.state.config.altered({"retention.ms": str(retention_ms)})
        self.commit(drafts.alter(len(self.state.partitions), config, self.state, self.now_ms))

    def grow(self) -> None:
        self.commit(drafts.alter(len(self.state.partitions) + 1, self.state.config, self.state, self.now_ms))

    def delete_and_create(self, partitions: int) -> None:
        self.commit(drafts.delete(self.state, self.now_ms))
        self.create(partitions)


STEPS = ("append", "append", "append", "append", "merge", "expire", "alter", "grow", "delete")


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    history.create(draw(st.integers(1, 3)))
    for step in draw(st.lists(st.sampled_from(STEPS), max_size=30)):
        partition = draw(st.integers(0, len(history.state.partitions) - 1))
        if step == "append":
            history.append(partition, draw(st.integers(1, 4)), draw(st.none() | st.integers(1, 2)))
        elif step == "merge":
            history.merge(partition, draw(st.integers(2, 5)))
        elif step == "expire":
            history.expire(partition, draw(st.floats(0, 1)))
        elif step == "alter":
            history.alter(draw(st.integers(-1, 10)))
        elif step == "grow":
            history.grow()
        else:
            history.delete_and_create(draw(st.integers(1, 3)))
    return history


def facts(state: TableState) -> dict[str, object]:
    """All that a state says, to compare two of them, or one with itself later."""
    return {
        "version": state.version,
        "terms": (state.metadata, state.protocol, state.config),
        "segments": [list(partition.segments) for partition in state.partitions],
        "bases": [list(partition.bases) for partition in state.partitions],
        "ends": state.next_offsets,
        "starts": [partition.log_start_offset for partition in state.partitions],
        "live": dict(state.live),
        "tags": {path: dict(each.tags) for path, each in state.live.items()},
        "txns": dict(state.txns),
        "tombstones": state.tombstones.times_ms(),
    }


def remembered(state: TableState) -> set[WrittenBatch]:
    return set(state.producers)
