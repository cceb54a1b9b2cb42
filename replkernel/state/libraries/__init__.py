"""What is known of each library: its objects, settings and generators. One file or folder a library."""
