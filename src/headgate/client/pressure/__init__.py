"""What a producer does when the server cannot take its jobs: wait, stop asking, keep them."""
