"""Members of Kafka's newer group protocol (KIP-848): all that they say and hear is in their heartbeats.

Owns what such a heartbeat may do. These members are served, so the group is divided for them as it is for HTTP
consumers, and partitions pass from one to the other in the same way. What differs is how they hear of it. They ask
every few seconds, and nothing wakes them; they acknowledge by saying which partitions they have, and not by naming a
generation; and a reply may be lost, after which they say everything anew.

The epoch of a member is the generation that it has acknowledged. While it has still to let go of partitions it keeps
its epoch, and may commit for them. Once it has, or if nothing is taken from it, its epoch becomes the group's
generation, and whatever comes late in the name of an older one is refused. One that does not let go within its
rebalance timeout is put out of the group.
"""

from __future__ import annotations

from msgspec.structs import replace

from consumer_groups.joining import identify
from consumer_groups.rebalance import CONSUMER_ASSIGNORS, REVOCATION, Deadline, Rebalancing, common_protocols, offers_of
from consumer_groups.requests import GOES_AWAY, JOINS, LEAVES, ConsumerHeartbeat, ConsumerHeartbeatReply
from consumer_groups.state import (
    GenerationAcknowledged,
    Group,
    Member,
    MemberJoined,
    MemberReplaced,
    MemberWentAway,
    Subscription,
)
from consumer_groups.topic_patterns import check_pattern
from lakelog.errors import ErrorCode, LakelogError

_PROTOCOL_TYPE = "consumer"


class Reconciling:
    def __init__(self, desk: Rebalancing) -> None:
        self._desk = desk

    def heartbeat(self, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatReply:
        if fault := _fault_of(request):
            return fault
        group = self._desk.groups.get(request.group_id)
        if request.epoch == JOINS:
            return self._join(group, request, now_ms)
        error = identify(group, request.member_id, request.instance_id)
        if group is None or error is not ErrorCode.NONE:
            return _refused(error, f"group {request.group_id!r} has no such member")
        member = group.members[request.member_id]
        if not member.reconciles:
            return _refused(ErrorCode.UNKNOWN_MEMBER_ID, "the member speaks another protocol")
        if request.epoch == LEAVES:
            return self._leave(group, request, now_ms)
        if request.epoch == GOES_AWAY:
            return self._go_away(group, request, now_ms)
        return self._go_on(group, member, request, now_ms)

    # Coming.

    def _join(self, group: Group | None, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatReply:
        former = None
        if group is not None:
            former = group.members.get(request.member_id)
            if former is not None and not former.reconciles:
                return _refused(ErrorCode.INVALID_REQUEST, "the member id belongs to a member of another protocol")
            static = group.member_of_instance(request.instance_id) if request.instance_id is not None else None
            if static is not None and static is not former:
                # Members of the older protocol do not say that they go away: the latest is the one that counts.
                if former is not None or (static.served and not static.away):
                    message = f"instance {request.instance_id!r} is still held by member {static.member_id}"
                    return _refused(ErrorCode.UNRELEASED_INSTANCE_ID, message)
                former = static if static.reconciles else None
            if not _fits(group, request):
                message = f"group {request.group_id!r} has members who assign in a way that is not known here"
                return _refused(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if former is None and len(group.members if group else ()) >= self._desk.settings.group_max_size:
            return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group has as many members as it may have")
        self._admit(group, former, request)
        group = self._desk.groups[request.group_id]
        if former is None or _wants_otherwise(former, group.members[request.member_id]):
            self._desk.rebalance(group, now_ms)
        return self._answer(group, request, now_ms)

    def _admit(self, group: Group | None, former: Member | None, request: ConsumerHeartbeat) -> None:
        """One that is new holds nothing, and so has let go of all that a next generation does not give it. One that
        comes again says that it has nothing, and keeps the claim to what it had.
        """
        if former is None:
            if group is not None and request.instance_id is not None:
                self._desk.replace_static(group, request.instance_id)
            blank = Member(
                member_id=request.member_id,
                instance_id=request.instance_id,
                session_timeout_ms=self._desk.settings.group_consumer_session_timeout_ms,
                rebalance_timeout_ms=0,
                protocols=(),
                subscription=Subscription(),
                acknowledged=(group.generation if group else 0) + 1,
                reconciles=True,
            )
            self._note(request, _updated(blank, request))
            return
        back = replace(_updated(former, request), member_id=request.member_id, away=False)
        if former.member_id != request.member_id:
            self._desk.forget(self._desk.groups[request.group_id], former.member_id, ErrorCode.FENCED_INSTANCE_ID)
            self._desk.record(MemberReplaced(request.group_id, former.member_id, back))
        elif back != former:
            self._note(request, back)

    def _note(self, request: ConsumerHeartbeat, member: Member) -> None:
        self._desk.record(MemberJoined(request.group_id, _PROTOCOL_TYPE, member))

    # Being there.

    def _go_on(self, group: Group, member: Member, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatReply:
        if member.away or not _is_current(group, member, request):
            message = f"the member's epoch is {member.acknowledged}, and not {request.epoch}"
            return _refused(ErrorCode.FENCED_MEMBER_EPOCH, message)
        updated = _updated(member, request)
        if updated != member:
            self._note(request, updated)
        if _wants_otherwise(member, updated):
            self._desk.rebalance(group, now_ms)
        return self._answer(group, request, now_ms)

    def _answer(self, group: Group, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatReply:
        member_id = request.member_id
        self._desk.renew_session(group, member_id, now_ms)
        self._reconcile(group, request, now_ms)
        _, assignment = group.told(member_id)
        key = group.group_id, member_id
        is_news = request.says_all or self._desk.sent.get(key) != assignment
        self._desk.sent[key] = assignment
        epoch = group.members[member_id].acknowledged
        return ConsumerHeartbeatReply(
            member_id=member_id, epoch=epoch, assignment=assignment if is_news or request.epoch == JOINS else None
        )

    def _reconcile(self, group: Group, request: ConsumerHeartbeat, now_ms: int) -> None:
        """One step towards the target: let go of what is lost, and only then get what is free."""
        member = group.members[request.member_id]
        generation, kept = group.told(member.member_id)
        lost = set(member.held) - set(kept)
        revocation = Deadline(REVOCATION, group.group_id, member.member_id)
        if lost and (request.owned is None or not lost.isdisjoint(request.owned)):
            if self._desk.timers.due_at(revocation) is None:
                self._desk.timers.set(revocation, now_ms + member.rebalance_timeout_ms)
            return
        self._desk.timers.cancel(revocation)
        if lost or member.acknowledged != generation or group.offered(member.member_id):
            self._desk.record(GenerationAcknowledged(group.group_id, member.member_id, generation))
            self._desk.complete_if_all_joined(group, now_ms)

    # Going.

    def _leave(self, group: Group, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatReply:
        self._desk.remove(group, request.member_id, "it left")
        self._desk.rebalance(group, now_ms)
        return ConsumerHeartbeatReply(member_id=request.member_id, epoch=LEAVES)

    def _go_away(self, group: Group, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatReply:
        """Its session goes on, and ends if it is not back by then."""
        self._desk.timers.cancel(Deadline(REVOCATION, group.group_id, request.member_id))
        self._desk.record(MemberWentAway(group.group_id, request.member_id))
        self._desk.complete_if_all_joined(group, now_ms)
        return ConsumerHeartbeatReply(member_id=request.member_id, epoch=GOES_AWAY)


def _fault_of(request: ConsumerHeartbeat) -> ConsumerHeartbeatReply | None:
    """What is wrong with the request itself."""
    if request.assignor and request.assignor not in CONSUMER_ASSIGNORS:
        message = f"{request.assignor!r} is none of the assignors {', '.join(CONSUMER_ASSIGNORS)}"
        return _refused(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    if reason := _invalid(request):
        return _refused(ErrorCode.INVALID_REQUEST, reason)
    try:
        check_pattern(request.pattern or "")
    except LakelogError as error:
        return _refused(ErrorCode.INVALID_REGULAR_EXPRESSION, error.message)
    return None


def _invalid(request: ConsumerHeartbeat) -> str:
    if not request.group_id:
        return "the group id is empty"
    if not request.member_id:
        return "the member id is empty"
    if "" in (request.instance_id, request.rack_id):
        return "an instance id or a rack id is empty"
    if request.epoch < GOES_AWAY:
        return f"there is no member epoch {request.epoch}"
    if request.epoch == GOES_AWAY and request.instance_id is None:
        return "only a static member can be away for a while"
    if request.epoch == JOINS:
        if request.rebalance_timeout_ms is None:
            return "a member that joins names its rebalance timeout"
        if request.owned != ():
            return "a member that joins has no partitions"
        if not request.topics and not request.pattern:
            return "a member that joins subscribes to topics, by name or by a pattern"
    return ""


def _fits(group: Group, request: ConsumerHeartbeat) -> bool:
    """Whether the others assign in a way that this member can live with: those that nobody serves are led by one."""
    if not group.members:
        return True
    common = common_protocols(group, without=request.member_id)
    offers = offers_of(request.assignor)
    shares_one = common is None or not offers or any(each.name in common for each in offers)
    return group.protocol_type == _PROTOCOL_TYPE and shares_one


def _is_current(group: Group, member: Member, request: ConsumerHeartbeat) -> bool:
    """A member whose last reply was lost names the epoch before, and what it has of what it was told."""
    if request.epoch == member.acknowledged:
        return True
    _, kept = group.told(member.member_id)
    return request.epoch == member.previous and request.owned is not None and set(request.owned) <= set(kept)


def _updated(member: Member, request: ConsumerHeartbeat) -> Member:
    """The member with all that the request does not leave out."""
    before = member.subscription or Subscription()
    pattern = before.pattern if request.pattern is None else request.pattern or None
    topics = before.topics if request.topics is None else tuple(sorted(set(request.topics)))
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        protocols=member.protocols if request.assignor is None else offers_of(request.assignor),
        subscription=Subscription(topics, pattern),
    )


def _wants_otherwise(before: Member, now: Member) -> bool:
    return (before.protocols, before.subscription) != (now.protocols, now.subscription)


def _refused(error: ErrorCode, message: str) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(error=error, message=message)
