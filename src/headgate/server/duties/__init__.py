"""What happens by itself at known times."""
