"""The only room that touches a model: attach, lower, merge, save, record. It leaves no trace."""
