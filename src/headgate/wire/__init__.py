"""JSON of the Open Job Spec to structs, and back."""
