"""The recorded exchanges, where they lie beside the repository, and what our client makes of each."""
