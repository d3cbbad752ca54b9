"""The site's pages: pure functions from runs to text. ``harness.site`` writes, builds and publishes them."""
