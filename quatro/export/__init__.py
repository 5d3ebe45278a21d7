"""A trained model as a folder that others load."""
