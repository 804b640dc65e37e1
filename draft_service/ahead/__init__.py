"""Work ahead: proposals for the likely outcomes of the step that the target is verifying."""
