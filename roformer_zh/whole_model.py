"""A Keras model whose weight files load whole or not at all."""

import keras
import numpy as np


class WholeModel(keras.Model):
    """A `keras.Model` that a weight file of another size leaves as it was.

    Keras assigns variable by variable: a file that stops fitting half-way has changed the first
    half, and layers that only the file has are passed over without a word.
    """

    def load_weights(self, filepath, skip_mismatch=False, **kwargs):
        """Loads a `.weights.h5` file that `save_weights` wrote.

        Args:
            filepath: the file.
            skip_mismatch: Keras' way to load what fits; False raises.

        Raises:
            ValueError: the file is for another depth, width or vocabulary; nothing is changed.
        """
        if skip_mismatch:
            return super().load_weights(filepath, skip_mismatch=True, **kwargs)
        before = [np.array(keras.ops.convert_to_numpy(value)) for value in self.variables]
        try:
            self._check_count(filepath)
            super().load_weights(filepath, **kwargs)
        except (ValueError, KeyError, OSError) as error:
            for variable, value in zip(self.variables, before, strict=True):
                variable.assign(value)
            if not isinstance(error, FileNotFoundError):
                raise ValueError(f"{filepath} holds no weights of this {type(self).__name__}; it "
                                 f"stays as it was: {error}") from error
            raise
        return None

    def _check_count(self, filepath):
        """Raises unless a `.weights.h5` file holds as many arrays as the model has variables."""
        if not str(filepath).endswith(".weights.h5"):
            return
        import h5py
        arrays = []
        with h5py.File(filepath) as file:
            file.visititems(lambda name, item: arrays.append(name)
                            if isinstance(item, h5py.Dataset) else None)
        if len(arrays) != len(self.variables):
            raise ValueError(f"it holds {len(arrays)} arrays, and the model has "
                             f"{len(self.variables)} variables")
