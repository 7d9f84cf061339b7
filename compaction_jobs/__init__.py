"""Spark jobs over topics: retention, key compaction, segment merging, vacuum and offset expiry."""
