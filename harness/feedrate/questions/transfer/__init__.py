"""The question transfer: how fast batches are copied to the device."""
