"""What a person sees and types: input, menus, questions and the status line, under the terminal's own scrollback."""
