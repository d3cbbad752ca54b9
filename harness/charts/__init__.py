"""Charts: one file a chart, found by its name; pure functions from a frame of estimates to an Altair chart."""
