"""The passes, one a file, one folder a level."""
