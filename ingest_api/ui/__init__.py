"""The console: a web page at /ui over the gateway's own APIs, and the little that these do not tell.

`assets` serves the page, `routes` what it asks for beyond v2 and v3, from `rates`, `lag_history` and `segments`.
"""
