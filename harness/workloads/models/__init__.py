"""Networks: one file each, found by its name, with ``build() -> torch.nn.Module``."""
