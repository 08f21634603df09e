"""Workers on Ray: processes with devices of their own, whose calls are awaited."""
