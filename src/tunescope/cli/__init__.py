"""The door: each verb one thin function, and what is typed behind it."""
