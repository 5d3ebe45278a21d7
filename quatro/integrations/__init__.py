"""QUATRO on other people's engines. Nothing else in `quatro` imports verl, ray or trl, and no room imports this one."""
