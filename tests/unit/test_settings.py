from pathlib import Path

import pytest

from ingest_api.settings import LoadedSettings, load_settings
from lakelog.errors import ErrorCode, LakelogError


def from_file(folder: Path, text: str) -> LoadedSettings:
    file = folder / "lakelog.toml"
    file.write_text(text)
    return load_settings({}, {}, file)


def test_a_list_in_a_file_is_what_has_commas_elsewhere(tmp_path: Path):
    text = (
        'cors_origins = ["https://a.example", "https://b.example"]\n[storage]\nscopes = ["read", "write"]\nretry = true'
    )
    loaded = from_file(tmp_path, text)
    assert loaded.gateway.cors_origins == "https://a.example,https://b.example"
    assert loaded.storage == {"scopes": "read,write", "retry": "true"}
    assert from_file(tmp_path, "cors_origins = []").gateway.cors_origins == ""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[cors_origins]\na = 1", "cors_origins"),
        ('cors_origins = [["https://a.example"]]', "cors_origins"),
        ('cors_origins = [{url = "https://a.example"}]', "cors_origins"),
        ("[storage.headers]\na = 1", "headers"),
    ],
)
def test_what_is_no_value_in_a_file_is_named(tmp_path: Path, text: str, name: str):
    with pytest.raises(LakelogError, match=f"{name} should be a value or a list of values") as caught:
        from_file(tmp_path, text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("url", ["https://streams.example.com", "http://[::1]:8080/lakelog/", ""])
def test_a_public_url(url: str):
    assert load_settings({"public_url": url}, {}).gateway.public_url == url


@pytest.mark.parametrize(
    "url", ["streams.example.com", "ftp://x", "https://", "https://x?y", "https://x/#y", "https://x y"]
)
def test_what_is_no_public_url(url: str):
    with pytest.raises(LakelogError, match="public_url"):
        load_settings({"public_url": url}, {})
