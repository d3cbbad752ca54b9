"""Charts of what the loader does and what holds training back."""
