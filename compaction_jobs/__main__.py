"""`python -m compaction_jobs`, and what spark-submit is given."""

from compaction_jobs.command import app

if __name__ == "__main__":
    app()
