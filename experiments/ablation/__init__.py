"""Whether QUATRO's dual for each prompt matters: the same loss with other temperatures, at the same realised KL."""
