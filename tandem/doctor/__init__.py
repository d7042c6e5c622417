"""What of this machine would keep a configuration from running, asked before anything is started."""
