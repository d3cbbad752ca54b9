"""The kit with which charts are drawn: figures, panels, theme, rendering, citation."""

__all__ = [
    "ceilings",
    "citation",
    "embed",
    "figure",
    "format_panels",
    "marks",
    "render",
    "self_comparison",
    "theme",
    "workers",
]
