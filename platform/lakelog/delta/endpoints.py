"""Where an object store is, by the names that its options and the environment have for it.

Must not know the store's own packages: Spark's settings are made from here too, on machines that have none of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

# obstore's names for the address of a store, for S3, Azure and GCS.
ENDPOINT_NAMES = frozenset(
    {
        "endpoint",
        "endpoint_url",
        "aws_endpoint",
        "aws_endpoint_url",
        "azure_endpoint",
        "azure_storage_endpoint",
        "base_url",
        "google_base_url",
    }
)


def given_endpoint(options: Mapping[str, str]) -> str | None:
    return next((value for name, value in options.items() if name.lower() in ENDPOINT_NAMES), None)


def s3_endpoint(options: Mapping[str, str]) -> str | None:
    """Where S3 is: as it was given, or as the environment tells the store's own tools. None for Amazon's."""
    return given_endpoint(options) or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or None
