"""The demo: its checks can fail, its command says so, and nothing of it is left."""
