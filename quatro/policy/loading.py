"""Tokenizers and models from folders or the Hub."""
def context_limit(model):
    return model.config.max_position_embeddings
