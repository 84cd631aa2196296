"""A small shop product for several workspaces: the sample that shows the queue in use."""
