"""Charts of copies to the device."""
