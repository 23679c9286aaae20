"""What settings would do to traffic, played through on the real engine in virtual time."""
