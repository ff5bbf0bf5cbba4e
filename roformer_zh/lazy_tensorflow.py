"""TensorFlow, loaded when one of its names is first used; import it `as tf`.

Importing the library must cost no 5 seconds and 600 MB, and the devices must be set up first.
"""

import importlib


def __getattr__(name):
    return getattr(importlib.import_module("tensorflow"), name)
