"""What watches and advises: statistics, reports for who debugs, and what to do instead."""
