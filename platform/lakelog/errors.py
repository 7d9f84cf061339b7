"""Every error that Lakelog answers with, in one table.

Owns the codes and the one exception that carries them. Numbers, names and the word on retrying are Kafka's,
so that a Kafka client that gets one does the right thing by itself; numbers above 1000 are Lakelog's own,
where Kafka has no code for the case. Which HTTP status or wire field a code becomes is for the edges to say,
and must not be known here.
"""

from enum import Enum


class ErrorCode(Enum):
    """A row is its name, its number, whether the same request may succeed later, and what it means."""

    UNKNOWN_SERVER_ERROR = -1, False, "The server failed in a way that it has no better code for."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is below the log start or above the high watermark."
    CORRUPT_MESSAGE = 2, True, "A batch does not match its checksum or cannot be decoded."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "There is no such topic, or the topic has no such partition."
    LEADER_NOT_AVAILABLE = 5, True, "Nobody leads the partition at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "Another server leads the partition; ask for fresh metadata."
    REQUEST_TIMED_OUT = 7, True, "The request was not finished in the time that it was given."
    MESSAGE_TOO_LARGE = 10, False, "A record is larger than max.message.bytes of its topic."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata string beside a committed offset is too long."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The group's coordinator is still reading the group's state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The group has no coordinator at the moment."
    NOT_COORDINATOR = 16, True, "Another server coordinates the group."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name is not allowed, or its kind forbids the operation."
    RECORD_LIST_TOO_LARGE = 18, False, "The batch as a whole is larger than the server takes."
    INVALID_REQUIRED_ACKS = 21, False, "acks is none of 0, 1 and all (-1)."
    ILLEGAL_GENERATION = 22, False, "The member speaks for a generation of its group that is over."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no assignment protocol with its group."
    INVALID_GROUP_ID = 24, False, "The group id is empty or otherwise not allowed."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member, perhaps because its session ran out."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the bounds that the server sets."
    REBALANCE_IN_PROGRESS = 27, False, "The group is being divided anew; join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The caller may not do this to the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "The caller may not do this to the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The caller may not do this to the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is further from now than its topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The server does not offer this way to authenticate."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit into the authentication that is under way."
    UNSUPPORTED_VERSION = 35, False, "The server does not speak this version of the request."
    TOPIC_ALREADY_EXISTS = 36, False, "There is a topic of this name already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is not allowed."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas to servers is not allowed."
    INVALID_CONFIG = 40, False, "A configuration has an unknown name or a value that is not allowed."
    NOT_CONTROLLER = 41, True, "Another server is the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or lacks a part."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The stored message format cannot answer this request."
    POLICY_VIOLATION = 44, False, "The request is well formed, but the operator's policy forbids it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "A producer skipped a sequence number, so a batch is missing."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The batch is stored already, too long ago to tell its offsets."
    INVALID_PRODUCER_EPOCH = 47, False, "A newer instance of the producer has taken over."
    OPERATION_NOT_ATTEMPTED = 55, False, "Left undone because another part of the same request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The store failed while the request was handled."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials were not accepted."
    UNKNOWN_PRODUCER_ID = 59, False, "Nothing is remembered of this producer; it may have been silent long."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session is unknown or was dropped; start a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The request is not the next one of its fetch session."
    TOPIC_DELETION_DISABLED = 73, False, "The server does not delete topics on request."
    FENCED_LEADER_EPOCH = 74, True, "The client's leader epoch is older than the partition's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The client's leader epoch is newer than this server knows."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The batch is compressed with a codec that is not taken here."
    OFFSET_NOT_AVAILABLE = 78, True, "A new leader cannot yet vouch for the high watermark."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id that came with this answer."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken over this static instance id."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group reads the topic now, so its offsets there stay."
    INVALID_RECORD = 87, False, "A record breaks a rule of its topic: a compacted one wants keys."
    UNSTABLE_OFFSET_COMMIT = 88, True, "An offset is part of a transaction that is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "There is no room for the request now; come back a little later."
    PRODUCER_FENCED = 90, False, "A newer producer holds the same transactional id."
    UNKNOWN_TOPIC_ID = 100, True, "The server does not know a topic of this id."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic has another id than the request says; it may be a new one."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "A fetch session mixed topic names with topic ids."
    FENCED_MEMBER_EPOCH = 110, False, "The member was fenced; it gives up its partitions and joins again."
    UNRELEASED_INSTANCE_ID = 111, False, "A static instance id is still held by another member."
    UNSUPPORTED_ASSIGNOR = 112, False, "The coordinator does not have the assignor that the member asks for."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is not its current one; ask for it and send again."
    INVALID_REGULAR_EXPRESSION = 128, False, "The pattern of topics is no regular expression of RE2's."

    EXPECTED_OFFSET_MISMATCH = 1001, False, "A conditional append named an offset that is not the next one."
    UNSUPPORTED_TABLE = 1002, False, "The Delta table asks for features that are not written here."

    def __init__(self, number: int, retriable: bool, meaning: str) -> None:
        self.number = number
        self.retriable = retriable
        self.meaning = meaning

    @classmethod
    def of(cls, number: int) -> "ErrorCode":
        """The row of a number; as in Kafka's clients, one that nobody knows is an unknown error."""
        return _BY_NUMBER.get(number, cls.UNKNOWN_SERVER_ERROR)


_BY_NUMBER = {code.number: code for code in ErrorCode}


class LakelogError(Exception):
    """A request could not be done: which row of the table says why, and what was wrong in this case."""

    code: ErrorCode
    message: str

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        self.message = message or code.meaning
        # The same two arguments, so that the error survives pickling on its way back from a worker.
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    @property
    def retriable(self) -> bool:
        return self.code.retriable


class UnknownPartition(LakelogError):
    """The topic is there and the partition is not. Kafka has one code for both; who can tell them apart may."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    def __reduce__(self) -> tuple[type["UnknownPartition"], tuple[str]]:
        return UnknownPartition, (self.message,)
