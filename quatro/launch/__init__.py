"""How a run begins, is saved and goes on: `prepare` checks it, `assemble` builds its parts, `saving` keeps them."""
