"""Parts of tools/jobs."""
