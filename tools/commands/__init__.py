"""The commands of `stepwell`, one file each."""
