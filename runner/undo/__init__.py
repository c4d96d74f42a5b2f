"""What actions did to files, kept so that it can be taken back: `keeper` takes, `plan` and `restore` bring back."""
