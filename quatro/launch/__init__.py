"""How a run begins, is saved and goes on: `begin` checks it, `assemble` builds its parts, `saving` keeps them."""
