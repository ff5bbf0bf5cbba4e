"""What `compare` is made of: settings, cells, results, tables."""
