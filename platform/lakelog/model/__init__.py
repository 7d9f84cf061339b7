"""The nouns: what a record batch, a topic and a segment are.

Values only. They can be compared and handed around freely; they know no store, no clock and no request.
"""
