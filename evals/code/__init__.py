"""Programs that a model wrote: taking them out of completions, and comparing them."""
