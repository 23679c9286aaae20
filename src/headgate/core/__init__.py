"""The rules: pure functions and structs, without input, output, clock or chance."""
