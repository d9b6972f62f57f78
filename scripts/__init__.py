"""What the project makes for itself: results, the tables of its pages, the picture of its rooms.

`python -m scripts.NAME`, from the root of the project.
"""
