"""Where jobs and runs are kept: the stores, and the history of what has ended."""
