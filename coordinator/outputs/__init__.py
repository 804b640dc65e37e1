"""The generation of a request's outputs, round by round."""
