"""Everything about files that come from others: what they may hold, and how they are read before anything is trusted.

``caps`` says how much is looked at, ``opened`` reads a file's structure, ``stated`` what its manifest may say,
``identities`` what its rows must fulfil, ``plausible`` what looks odd beside machines of the same make, ``passed``
which runs need no second look, and ``guard`` runs all of it in a process that may die.
"""
