"""How a run begins, is saved and goes on: `begin` checks it, `saving` builds its parts and keeps them."""
