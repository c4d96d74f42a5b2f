"""What a person can say to ringfence itself inside a talk: `/commands`, ours and those from Markdown files."""
