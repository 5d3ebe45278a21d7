"""Files on disk: strict JSON lines, whole-file writing, locks."""
