"""Networks: one file each, found by its name, with ``REQUIRES``, ``TASK`` and ``build() -> torch.nn.Module``."""
