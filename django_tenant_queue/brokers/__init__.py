"""The schedule: what may run now, and who holds it. `base` is the contract, the others keep it."""
