"""How one becomes a member of a group, comes again, or takes the place of oneself.

Owns what a JoinGroup may do: who is let in, who is told to come with an id, who is fenced. What follows for the group
is for `consumer_groups.rebalance` to do.
"""

from __future__ import annotations

from dataclasses import replace as changed

from msgspec.structs import replace

from consumer_groups.rebalance import PENDING, SERVED_ASSIGNORS, Deadline, Rebalancing, common_protocols
from consumer_groups.requests import JoinGroup, JoinReply, Parked
from consumer_groups.state import Group, Member, MemberJoined, MemberReplaced, Phase, Protocol
from consumer_groups.topic_patterns import check_pattern
from lakelog.errors import ErrorCode, LakelogError


class Joining:
    def __init__(self, desk: Rebalancing) -> None:
        self._desk = desk

    def join(self, request: JoinGroup, now_ms: int) -> JoinReply | Parked:
        if fault := self._fault_of(request):
            return changed(fault, member_id=request.member_id)
        if request.served and not request.protocols:
            request = changed(request, protocols=tuple(Protocol(name) for name in SERVED_ASSIGNORS))
        group = self._desk.groups.get(request.group_id)
        is_pending = request.member_id in self._desk.pending.get(request.group_id, ())
        former = None
        if request.member_id and not is_pending:
            error = identify(group, request.member_id, request.instance_id)
            if group is None or error is not ErrorCode.NONE:
                return JoinReply(error=error, member_id=request.member_id)
            former = group.members[request.member_id]
        elif request.instance_id is not None and group is not None:
            former = group.member_of_instance(request.instance_id)
            if former is not None and former.away:
                former = None  # it went as a member of the newer protocol, and comes as somebody else
        if group is not None and not _agrees(group, request, former):
            return JoinReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
        if group is None or former is None:
            return self._admit(request, now_ms)
        if not request.member_id:
            return self._take_over(group, former, request, now_ms)
        return self._rejoin(group, former, request, now_ms)

    def _fault_of(self, request: JoinGroup) -> JoinReply | None:
        """What is wrong with the request itself."""
        least, most = self._desk.settings.group_min_session_timeout_ms, self._desk.settings.group_max_session_timeout_ms
        if not request.group_id:
            return JoinReply(error=ErrorCode.INVALID_GROUP_ID)
        if not least <= request.session_timeout_ms <= most:
            message = f"the session timeout is {request.session_timeout_ms} ms, and must be from {least} to {most} ms"
            return JoinReply(error=ErrorCode.INVALID_SESSION_TIMEOUT, message=message)
        if request.subscription is None:
            offers_something = bool(request.protocol_type and request.protocols)
            return None if offers_something else JoinReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        for protocol in request.protocols:
            if protocol.name not in SERVED_ASSIGNORS:
                message = f"{protocol.name!r} is none of the assignors {', '.join(SERVED_ASSIGNORS)}"
                return JoinReply(error=ErrorCode.UNSUPPORTED_ASSIGNOR, message=message)
        try:
            check_pattern(request.subscription.pattern or "")
        except LakelogError as error:
            return JoinReply(error=error.code, message=error.message)
        return None

    def _admit(self, request: JoinGroup, now_ms: int) -> JoinReply | Parked:
        """A member that was not there before."""
        group = self._desk.groups.get(request.group_id)
        pending = self._desk.pending.get(request.group_id, set())
        if (
            len(group.members if group else ()) + len(pending - {request.member_id})
            >= self._desk.settings.group_max_size
        ):
            return JoinReply(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=request.member_id)
        if request.member_id_required and not request.member_id and request.instance_id is None:
            self._desk.pending.setdefault(request.group_id, set()).add(request.new_member_id)
            due_ms = now_ms + request.session_timeout_ms
            self._desk.timers.set(Deadline(PENDING, request.group_id, request.new_member_id), due_ms)
            return JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=request.new_member_id)
        self._desk.drop_pending(request.group_id, request.member_id)
        if request.instance_id is not None and group is not None:
            self._desk.replace_static(group, request.instance_id)
        member_id = request.member_id or request.new_member_id
        generation = group.generation if group else 0
        # Whoever is new holds nothing, and so has let go of all that the next generation does not give it.
        self._note(_member(request, member_id, acknowledged=generation + 1), request)
        group = self._desk.groups[request.group_id]
        self._desk.prolong_delay(group, now_ms)
        return self._join_anew(group, member_id, now_ms)

    def _take_over(self, group: Group, former: Member, request: JoinGroup, now_ms: int) -> JoinReply | Parked:
        """A static member is back under a new id. If it wants the same as before, nobody else is disturbed."""
        member_id = request.new_member_id
        led = group.leader == former.member_id
        self._desk.forget(group, former.member_id, ErrorCode.FENCED_INSTANCE_ID)
        successor = replace(_updated(former, request, member_id), held=())
        self._desk.record(MemberReplaced(group.group_id, former.member_id, successor))
        if request.served:
            self._desk.acknowledge(group, member_id, now_ms)
        if _wants_otherwise(former, request) or (not request.served and group.phase is not Phase.STABLE):
            return self._join_anew(group, member_id, now_ms)
        self._desk.renew_session(group, member_id, now_ms)
        reply = self._desk.join_reply(group, member_id)
        if not led or request.served:
            return reply
        if request.knows_skip_assignment:
            return changed(reply, skip_assignment=True)
        # A client that does not know of skipping would assign, and nobody waits for that: let another seem to lead.
        return changed(reply, leader=former.member_id, members=())

    def _rejoin(self, group: Group, former: Member, request: JoinGroup, now_ms: int) -> JoinReply | Parked:
        member_id = former.member_id
        updated = _updated(former, request, member_id)
        if updated != former:
            self._note(updated, request)
        if _wants_otherwise(former, request):
            return self._join_anew(group, member_id, now_ms)
        leader_asks_again = group.phase is Phase.STABLE and group.leader == member_id
        if not request.served and (group.phase is Phase.PREPARING_REBALANCE or leader_asks_again):
            return self._join_anew(group, member_id, now_ms)
        self._desk.renew_session(group, member_id, now_ms)
        return self._desk.join_reply(group, member_id)

    def _join_anew(self, group: Group, member_id: str, now_ms: int) -> JoinReply | Parked:
        """Divide the group anew with this member in it, who waits for the outcome unless the coordinator serves it."""
        if not group.members[member_id].served:
            parked = self._desk.park_join(group, member_id)
            self._desk.rebalance(group, now_ms)
            return parked
        self._desk.renew_session(group, member_id, now_ms)
        self._desk.rebalance(group, now_ms)
        return self._desk.join_reply(group, member_id)

    def _note(self, member: Member, request: JoinGroup) -> None:
        self._desk.record(MemberJoined(request.group_id, request.protocol_type, member))


def identify(group: Group | None, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether this is a member of the group: by its id, and if it is static by being the latest of its instance id."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance_id is not None:
        static = group.member_of_instance(instance_id)
        if static is not None and static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.UNKNOWN_MEMBER_ID if static is None else ErrorCode.NONE
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _agrees(group: Group, request: JoinGroup, former: Member | None) -> bool:
    """Whether the one who joins has a protocol in common with all others, and is of the kind that it was."""
    if former is not None and (former.served != request.served or former.reconciles):
        return False
    if group.members.keys() <= {former.member_id if former else ""}:
        return True
    common = common_protocols(group, without=former.member_id if former else "")
    shares_one = common is None or any(each.name in common for each in request.protocols)
    return request.protocol_type == group.protocol_type and shares_one


def _wants_otherwise(former: Member, request: JoinGroup) -> bool:
    return (former.protocols, former.subscription) != (request.protocols, request.subscription)


def _member(request: JoinGroup, member_id: str, acknowledged: int) -> Member:
    return Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        protocols=request.protocols,
        subscription=request.subscription,
        acknowledged=acknowledged,
    )


def _updated(former: Member, request: JoinGroup, member_id: str) -> Member:
    return replace(
        former,
        member_id=member_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        protocols=request.protocols,
        subscription=request.subscription,
    )


def _rebalance_timeout_ms(request: JoinGroup) -> int:
    """Kafka's oldest clients do not name one, and mean their session timeout."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms > 0 else request.session_timeout_ms
