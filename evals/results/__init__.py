"""Result documents: what they hold, and tables read from them or from the paper."""
