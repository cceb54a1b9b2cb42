"""Open, packed and closed files, and streams over bytes in memory."""
