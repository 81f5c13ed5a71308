"""The scheduler: jobs on top of a store, the node that runs them, and its executors."""

__all__: list[str] = []
