"""Validation of files that come from others.

``guard`` and ``admission`` are for callers; they ask a process that may die. In it ``validator`` opens files
(``parquet``, ``manifest``, within ``caps``) and applies ``rules`` and ``run_rules``.
"""
