"""The coordinator of consumer groups: a state machine without I/O, without a clock and without chance.

Owns what a request may do to a group. `handle` takes a request and the time, and answers with an `Outcome`: the
reply, or a ticket under which the reply comes later; replies of others that were waiting for this; the facts to put
on record; and the served members that should be woken. Facts are applied as they are decided, by the same `apply`
that replays them, so the living state is always the replayed one. They must be on record before a reply goes out: a
caller who cannot record them throws the coordinator away, and makes one from the record.

How groups rebalance, and why members that the coordinator serves never wait, stands in `consumer_groups.rebalance`.
A caller's rules for a served member:

1. Join; the reply says what it may read.
2. Send a heartbeat before each poll, with the generation last taken in. The reply says what it may read now.
3. If the reply names another generation: commit what is to be let go of, under the old generation; let go of it; take
   the new generation in; send a heartbeat with it at once. That one is the acknowledgement, and passes partitions on.

Sockets, HTTP, journals and offsets must not be known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from consumer_groups.assignors import TopicPartition
from consumer_groups.group_settings import GroupSettings
from consumer_groups.joining import Joining, identify
from consumer_groups.rebalance import (
    PENDING,
    REBALANCE,
    REVOCATION,
    SESSION,
    Deadline,
    Rebalancing,
)
from consumer_groups.reconciling import Reconciling
from consumer_groups.requests import (
    GOES_AWAY,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteReply,
    GroupDescription,
    GroupListing,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    LeaveGroup,
    Leaver,
    LeaveReply,
    MemberDescription,
    Outcome,
    Parked,
    Reply,
    Request,
    SyncGroup,
    SyncReply,
)
from consumer_groups.state import (
    AssignmentStored,
    Group,
    GroupDeleted,
    Groups,
    GroupType,
    Member,
    Phase,
)
from consumer_groups.subscription_protocol import decode_assignment
from lakelog.errors import ErrorCode, LakelogError

_ENDS_OF_MEMBERS = {
    SESSION: "its session timed out",
    REVOCATION: "it did not let go of partitions in the rebalance timeout",
}


class Coordinator:
    def __init__(self, settings: GroupSettings | None = None, groups: Groups | None = None) -> None:
        """A coordinator of no groups, or of those that were replayed; `resume` lets the time of these run again."""
        self._groups = groups if groups is not None else {}
        self._desk = Rebalancing(settings or GroupSettings(), self._groups)
        self._joining = Joining(self._desk)
        self._reconciling = Reconciling(self._desk)

    @property
    def groups(self) -> Mapping[str, Group]:
        """To look at."""
        return self._groups

    @property
    def topics(self) -> Mapping[str, int]:
        """The topics that groups may read, as far as `topics_changed` told, and their numbers of partitions."""
        return self._desk.topics

    def resume(self, now_ms: int) -> None:
        """After a restart every session and every rebalance under way begins anew."""
        for group in self._groups.values():
            for member_id in group.members:
                self._desk.renew_session(group, member_id, now_ms)
            if group.members and not group.served and group.phase is not Phase.STABLE:
                self._desk.wait_for_members(group, now_ms)

    def handle(self, request: Request, now_ms: int) -> Outcome:
        reply: Reply | Parked
        match request:
            case JoinGroup():
                reply = self._joining.join(request, now_ms)
            case SyncGroup():
                reply = self._sync(request, now_ms)
            case Heartbeat():
                reply = self._heartbeat(request, now_ms)
            case ConsumerHeartbeat():
                reply = self._reconciling.heartbeat(request, now_ms)
            case LeaveGroup():
                reply = self._leave(request, now_ms)
            case DeleteGroup():
                reply = self._delete(request)
        return self._desk.finish(reply)

    def next_deadline(self) -> int | None:
        """When `tick` will have something to do; None if nothing can run out."""
        return self._desk.timers.next_ms()

    def tick(self, now_ms: int) -> Outcome:
        """Do what the passing of time asks for: sessions and rebalances end."""
        due = list(self._desk.timers.pop_due(now_ms))
        self._end_sessions([each for each in due if each.kind in _ENDS_OF_MEMBERS], now_ms)
        for each in due:
            group = self._groups.get(each.group_id)
            if each.kind == PENDING:
                self._desk.drop_pending(each.group_id, each.member_id)
            if group is None or each.kind in _ENDS_OF_MEMBERS:
                continue
            # The end of a session may have begun another wait, which is not over.
            if each.kind == REBALANCE and self._desk.timers.due_at(each) is None:
                self._desk.stop_waiting_for_members(group, now_ms)
            else:
                self._desk.complete_if_all_joined(group, now_ms)
        return self._desk.finish(None)

    def _end_sessions(self, due: Iterable[Deadline], now_ms: int) -> None:
        """All first and then one rebalance for each group, however many of its members fell silent together."""
        shrunk: dict[str, Group] = {}
        for each in due:
            group = shrunk[each.group_id] = self._groups[each.group_id]
            if each.member_id in group.members:  # for both reasons at once, it is gone by now
                self._desk.remove(group, each.member_id, _ENDS_OF_MEMBERS[each.kind])
        for group in shrunk.values():
            self._desk.rebalance(group, now_ms)

    def topics_changed(self, partition_counts: Mapping[str, int], now_ms: int) -> Outcome:
        """These are all topics now. Groups in which a served member has more or less to read are divided anew.

        Members of Kafka's protocol watch their topics themselves, and their leader joins again when it must.
        """
        self._desk.topics = dict(partition_counts)
        for group in self._groups.values():
            if self._desk.partition_counts(group) != group.partition_counts:
                self._desk.rebalance(group, now_ms)
        return self._desk.finish(None)

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        now_ms: int,
        partitions: Iterable[TopicPartition] = (),
    ) -> ErrorCode:
        """Whether this member may commit offsets now, in the name of this generation; NONE if it may.

        A member that reconciles names its epoch. Any other served member commits for what it holds. Who is in no group
        (generation -1, no member id) commits for groups that are empty. An accepted commit is a sign of life, except of
        a member that reconciles.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE
        if group.phase is Phase.EMPTY and generation < 0:
            return ErrorCode.NONE
        error = identify(group, member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        member = group.members[member_id]
        if member.reconciles:
            return ErrorCode.NONE if generation == _epoch(member) else ErrorCode.STALE_MEMBER_EPOCH
        if member.served:
            told, _ = group.told(member_id)
            if not member.acknowledged <= generation <= told or not set(partitions) <= set(member.held):
                return ErrorCode.ILLEGAL_GENERATION
        elif generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        elif group.phase is Phase.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._desk.sign_of_life(group, member, now_ms)
        return ErrorCode.NONE

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether this member may know in this epoch what is committed. Who names no member may always."""
        group = self._groups.get(group_id)
        if group is None or group.type is GroupType.CLASSIC or (member_id is None and epoch < 0):
            return ErrorCode.NONE
        member = group.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_stale = member.reconciles and epoch != _epoch(member)
        return ErrorCode.STALE_MEMBER_EPOCH if is_stale else ErrorCode.NONE

    def subscribes(self, group_id: str, topic: str) -> bool:
        """Whether some member of the group reads the topic, so that its offsets there must stay."""
        group = self._groups.get(group_id)
        members = group.members.values() if group else ()
        return any(topic in self._desk.topics_of(group, member) for member in members if group)

    def describe(self, group_id: str) -> GroupDescription:
        """A group as it stands; one that is not there is dead."""
        group = self._groups.get(group_id)
        if group is None:
            return GroupDescription(group_id=group_id, phase=Phase.DEAD)
        return GroupDescription(
            group_id=group_id,
            phase=group.phase,
            type=group.type,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader,
            changed_ms=group.changed_ms,
            members=tuple(self._describe_member(group, member) for member in group.members.values()),
        )

    def list_groups(self) -> tuple[GroupListing, ...]:
        return tuple(
            GroupListing(each.group_id, each.protocol_type, each.phase, each.type) for each in self._groups.values()
        )

    # Being a member.

    def _sync(self, request: SyncGroup, now_ms: int) -> SyncReply | Parked:
        group = self._groups.get(request.group_id)
        error = identify(group, request.member_id, request.instance_id)
        if group is None or error is not ErrorCode.NONE:
            return SyncReply(error=error)
        member = group.members[request.member_id]
        if member.served:
            return SyncReply(error=ErrorCode.INVALID_REQUEST)
        if request.generation != group.generation:
            return SyncReply(error=ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol):
            return SyncReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.phase is Phase.PREPARING_REBALANCE:
            return SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS)
        self._desk.sign_of_life(group, member, now_ms)
        if group.phase is Phase.STABLE:
            return self._desk.sync_reply(group, member)
        if request.member_id != group.leader:
            return self._desk.park_sync(group, request.member_id)
        return self._store_assignment(group, request)

    def _store_assignment(self, group: Group, request: SyncGroup) -> SyncReply | Parked:
        given = dict(request.assignments)
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        served = [member_id for member_id, member in group.members.items() if member.served]
        try:
            targets = {member_id: decode_assignment(assignments[member_id]).partitions for member_id in served}
        except LakelogError as error:
            return SyncReply(error=error.code)
        parked = self._desk.park_sync(group, request.member_id)
        self._desk.record(AssignmentStored(group.group_id, assignments, targets))
        self._desk.timers.cancel(Deadline(REBALANCE, group.group_id))
        self._desk.release_syncs(group)
        return parked

    def _heartbeat(self, request: Heartbeat, now_ms: int) -> HeartbeatReply:
        group = self._groups.get(request.group_id)
        error = identify(group, request.member_id, request.instance_id)
        if group is None or error is not ErrorCode.NONE:
            return HeartbeatReply(error=error)
        member = group.members[request.member_id]
        if member.reconciles:
            return HeartbeatReply(error=ErrorCode.UNKNOWN_MEMBER_ID)
        if member.served:
            return self._serve_heartbeat(group, member, request, now_ms)
        if request.generation != group.generation:
            return HeartbeatReply(error=ErrorCode.ILLEGAL_GENERATION)
        self._desk.sign_of_life(group, member, now_ms)
        if group.phase is Phase.PREPARING_REBALANCE:
            return HeartbeatReply(error=ErrorCode.REBALANCE_IN_PROGRESS, generation=group.generation)
        return HeartbeatReply(generation=group.generation)

    def _serve_heartbeat(self, group: Group, member: Member, request: Heartbeat, now_ms: int) -> HeartbeatReply:
        generation, _ = group.told(member.member_id)
        if request.generation > generation:
            return HeartbeatReply(error=ErrorCode.ILLEGAL_GENERATION)
        self._desk.sign_of_life(group, member, now_ms)
        if request.generation == generation:
            self._desk.acknowledge(group, member.member_id, now_ms)
        self._desk.announce(group, member.member_id)
        generation, assignment = group.told(member.member_id)
        return HeartbeatReply(generation=generation, assignment=assignment)

    # Going.

    def _leave(self, request: LeaveGroup, now_ms: int) -> LeaveReply:
        group = self._groups.get(request.group_id)
        count_before = len(group.members) if group else 0
        errors = tuple(self._remove(request.group_id, group, leaver) for leaver in request.leavers)
        if group is not None:
            if len(group.members) < count_before:
                self._desk.rebalance(group, now_ms)
            # A member id that is given up unused may be what the others were waiting for.
            self._desk.complete_if_all_joined(group, now_ms)
        return LeaveReply(errors)

    def _remove(self, group_id: str, group: Group | None, leaver: Leaver) -> ErrorCode:
        if self._desk.drop_pending(group_id, leaver.member_id):
            return ErrorCode.NONE
        member_id = leaver.member_id
        if group is not None and not member_id and leaver.instance_id is not None:
            static = group.member_of_instance(leaver.instance_id)
            member_id = static.member_id if static else ""
        error = identify(group, member_id, leaver.instance_id)
        if group is not None and error is ErrorCode.NONE:
            self._desk.remove(group, member_id, "it left")
        return error

    def _delete(self, request: DeleteGroup) -> DeleteReply:
        group = self._groups.get(request.group_id)
        if group is None:
            return DeleteReply(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.phase is not Phase.EMPTY:
            return DeleteReply(ErrorCode.NON_EMPTY_GROUP)
        self._desk.record(GroupDeleted(request.group_id))
        return DeleteReply()

    def _describe_member(self, group: Group, member: Member) -> MemberDescription:
        assignment = member.held
        if not member.served and group.phase is Phase.STABLE and group.protocol_type == "consumer":
            try:
                assignment = decode_assignment(member.assignment).partitions
            except LakelogError:
                assignment = ()
        return MemberDescription(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            served=member.served,
            topics=self._desk.topics_of(group, member),
            assignment=assignment,
            target=member.target,
            epoch=_epoch(member),
            subscription=member.subscription,
            metadata=self._desk.metadata_of(group, member),
            assignment_bytes=member.assignment,
        )


def _epoch(member: Member) -> int:
    return GOES_AWAY if member.away else member.acknowledged
