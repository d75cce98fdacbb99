"""The merchant's code that the workers of these tests run: receivers that a test can hold still."""
