"""A small Django project with tasks that misbehave, for trees of real worker processes."""
