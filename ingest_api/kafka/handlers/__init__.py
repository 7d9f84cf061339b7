"""What the requests mean: one module for each concern, on the gateway's broker and groups."""
