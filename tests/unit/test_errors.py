import pickle

from lakelog.errors import ErrorCode, LakelogError

KAFKA_RETRIABLE = {
    2, 3, 5, 6, 7, 14, 15, 16, 41, 56, 70, 71, 74, 75, 78, 88, 89, 100, 103, 106,
}  # fmt: skip


def test_numbers_are_kafkas():
    known = {
        "UNKNOWN_SERVER_ERROR": -1,
        "NONE": 0,
        "OFFSET_OUT_OF_RANGE": 1,
        "UNKNOWN_TOPIC_OR_PARTITION": 3,
        "NOT_LEADER_OR_FOLLOWER": 6,
        "MESSAGE_TOO_LARGE": 10,
        "INVALID_TOPIC_EXCEPTION": 17,
        "UNKNOWN_MEMBER_ID": 25,
        "REBALANCE_IN_PROGRESS": 27,
        "TOPIC_ALREADY_EXISTS": 36,
        "INVALID_CONFIG": 40,
        "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
        "KAFKA_STORAGE_ERROR": 56,
        "MEMBER_ID_REQUIRED": 79,
        "THROTTLING_QUOTA_EXCEEDED": 89,
    }
    assert {name: ErrorCode[name].number for name in known} == known


def test_retriable_where_kafka_says_so():
    assert {code.number for code in ErrorCode if code.retriable} == KAFKA_RETRIABLE


def test_own_codes_stay_out_of_kafkas_range():
    own = {code for code in ErrorCode if code.number > 1000}
    assert own == {ErrorCode.EXPECTED_OFFSET_MISMATCH, ErrorCode.UNSUPPORTED_TABLE}
    assert all(code.number < 1000 for code in set(ErrorCode) - own)


def test_a_code_is_found_by_its_number():
    assert all(ErrorCode.of(code.number) is code for code in ErrorCode)
    assert ErrorCode.of(31_999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_every_meaning_is_a_sentence_of_its_own():
    meanings = [code.meaning for code in ErrorCode]
    assert len(set(meanings)) == len(meanings)
    assert all(meaning.endswith(".") for meaning in meanings)


def test_an_error_says_its_code_and_its_case():
    error = LakelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic orders")
    assert str(error) == "UNKNOWN_TOPIC_OR_PARTITION: there is no topic orders"
    assert error.retriable
    assert not LakelogError(ErrorCode.INVALID_CONFIG, "x").retriable


def test_an_error_without_a_case_says_what_its_code_means():
    assert LakelogError(ErrorCode.NON_EMPTY_GROUP).message == ErrorCode.NON_EMPTY_GROUP.meaning


def test_an_error_survives_pickling():
    error = pickle.loads(pickle.dumps(LakelogError(ErrorCode.INVALID_RECORD, "record 3 has no key")))
    assert (error.code, error.message) == (ErrorCode.INVALID_RECORD, "record 3 has no key")
