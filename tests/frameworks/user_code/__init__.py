"""What runs inside the jobs, as a user would write it; nothing of it runs in the tests."""
