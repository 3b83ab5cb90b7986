"""Other methods for safety and other replay methods."""
