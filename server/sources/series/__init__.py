"""From threads to series: grouped, settled, superseded, and told as JSON."""
