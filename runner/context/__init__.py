"""What the model is told, part by part, and how much of its window that takes."""
