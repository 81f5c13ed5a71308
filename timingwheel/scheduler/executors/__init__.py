"""What runs handlers: in this thread, in threads, on a loop, in processes, as commands.

Each is imported from its own module, for a program needs one or two of them.
"""

__all__: list[str] = []
