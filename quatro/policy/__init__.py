"""The policy: its model, its rows of tokens, its head, adapters, embedded models."""
