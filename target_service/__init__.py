"""The target service: verifies proposals with the target model."""
