"""What small bodies of requests are: a field that nobody knows is a mistake, and its sender is told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
