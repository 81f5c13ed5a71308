"""What a store decides: pure, over a view of what is there, and the same for every store."""

__all__: list[str] = []
