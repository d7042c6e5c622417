"""What a model is made of, and what each way to spread it over GPUs costs in memory and exchange."""
