"""The noisy-neighbour story, live: one workspace imports a huge file while the others go about their day, in one line and then fairly."""
