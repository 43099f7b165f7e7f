"""What people do by way of the API, and what their scripts may do for them."""
