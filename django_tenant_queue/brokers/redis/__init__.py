"""The schedule on Redis or Valkey. The only room that imports redis."""
