"""Programs that a model wrote: taking them out of completions, comparing them, and grading them in the sandbox."""
