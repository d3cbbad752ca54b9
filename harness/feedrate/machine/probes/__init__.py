"""Observers outside the measured process: the host through /proc, the GPU through NVML."""
