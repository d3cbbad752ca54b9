"""Data sets of other people, fetched for the user from where they are published, and made ready for a workload.

``div2k.fetch`` and ``pets.fetch`` are what the command line calls. ``transfer`` brings one file whole, over however
many broken connections; ``crops`` cuts photographs into sub-images on all cores; ``disk`` asks for room and makes what
is written either whole or absent, and shows how it goes.

Nothing that is fetched here is ever shipped with this project or with results. Loads neither torch nor pandas.
"""

__all__ = ["crops", "div2k", "pets"]
