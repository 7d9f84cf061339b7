"""`lakelog jobs`: the commands of `compaction_jobs`, which is also started without this command line."""

from compaction_jobs.command import app

__all__ = ["app"]
