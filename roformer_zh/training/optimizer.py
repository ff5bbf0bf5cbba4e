"""AdamW, the learning rate and the loss scale, written for a step that sums gradients itself.

Keras' AdamW clips before the sum over replicas and reduces once more on its own; this one takes
gradients that are already summed, and every replica updates its own copy of the weights. Its
numbers are keras.optimizers.AdamW's (a test compares them).
"""

from roformer_zh import lazy_tensorflow as tf


def decayed_variables(model):
    """The trainable kernels and tables of a model: what weight decay acts on.

    They are found by role: the attributes `kernel` and `embeddings` of the model's layers. Biases,
    LayerNorm's scales and shifts, and other weights are left out.

    Raises:
        ValueError: every trainable variable is a kernel or table, or none is.
    """
    roles = set()
    for layer in model._flatten_layers():
        for role in ("kernel", "embeddings"):
            roles.add(id(getattr(layer, role, None)))
    decayed = [variable for variable in model.trainable_variables if id(variable) in roles]
    if not 0 < len(decayed) < len(model.trainable_variables):
        raise ValueError(
            "weight decay must act on some trainable variables (layer.kernel, layer.embeddings) "
            f"and spare others (biases, LayerNorm); {model.name} has {len(decayed)} of the first "
            f"kind and {len(model.trainable_variables) - len(decayed)} of the second"
        )
    return decayed


def decay_summary(model, decayed, weight_decay):
    """One line that says how many weights decay."""
    size = sum(int(tf.size(variable)) for variable in decayed)
    total = sum(int(tf.size(variable)) for variable in model.trainable_variables)
    return (
        f"weight decay {weight_decay:g} on {len(decayed)} of {len(model.trainable_variables)} "
        f"trainable variables ({size:,} of {total:,} numbers)"
    )


def layer_rates(model, decay):
    """A factor on the learning rate for each trainable variable: layer-wise decay from the top.

    With N blocks, the head and the pooler have 1, block i has decay ** (N - i), so decay for the
    topmost, and the embeddings, with their norm and projection, decay ** (N + 1).

    Args:
        model: a head, which has an `encoder` with `blocks`.
        decay: the factor between neighbours, above 0 and at most 1; 1 = no difference.

    Source: arXiv 2003.10555, appendix, counted as in BEiT (arXiv 2106.08254).
    """
    if not 0 < decay <= 1:
        raise ValueError(f"layer_decay must be above 0 and at most 1; got {decay:g}")
    encoder = model.encoder
    blocks, pooler = encoder.blocks, encoder.pooler_dense
    depth = {id(variable): len(blocks) + 1 for variable in encoder.variables}
    for index, block in enumerate(blocks):
        depth |= {id(variable): len(blocks) - index for variable in block.variables}
    depth |= {id(variable): 0 for variable in (pooler.variables if pooler else ())}
    return [decay ** depth.get(id(variable), 0) for variable in model.trainable_variables]


class AdamW:
    """Adam with decoupled weight decay on variables that live once a replica.

    Args:
        variables: the model's trainable Keras variables.
        decayed: those among them that decay.
        options: `OptimizerOptions`.
        rate_scales: a factor on the learning rate for each variable, and so on its decay too
            (learning rate x factor x weight_decay x weight); None = 1 for all.

    Make it inside the strategy's scope. Source: arXiv 1711.05101, algorithm 2; the bias correction
    is folded into the learning rate, so that epsilon stands where Keras and BERT have it.
    """

    def __init__(self, variables, decayed, options, rate_scales=None):
        self.rate_scales = rate_scales or [1.0] * len(variables)
        self.options, self.variables = options, [variable.value for variable in variables]
        decayed = {id(variable) for variable in decayed}
        self.decays = [id(variable) in decayed for variable in variables]
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.first, self.second = (
            [tf.Variable(lambda v=v: tf.zeros(v.shape), trainable=False) for v in variables]
            for _ in range(2)
        )

    def apply(self, gradients, rate, local):
        """One update of this replica's copies.

        Args:
            gradients: a tensor a variable; None leaves the variable as it is.
            rate: the learning rate, a float32 scalar.
            local: function from a variable to this replica's copy of it.
        """
        options = self.options
        count = tf.cast(local(self.iterations).assign_add(1), tf.float32)
        slots = zip(self.variables, gradients, self.first, self.second, self.decays,
                    self.rate_scales, strict=True)
        for variable, gradient, first, second, decays, scale in slots:
            if gradient is None:
                continue
            variable = local(variable)
            own = rate if scale == 1 else rate * scale
            if decays:
                variable.assign_sub(variable * (own * options.weight_decay))
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=local(first).handle,
                v=local(second).handle,
                beta1_power=tf.pow(options.beta_1, count),
                beta2_power=tf.pow(options.beta_2, count),
                lr=own,
                beta1=options.beta_1,
                beta2=options.beta_2,
                epsilon=options.epsilon,
                grad=gradient,
            )

    @property
    def slots(self):
        """All variables of the optimizer, in a fixed order."""
        return [self.iterations, *self.first, *self.second]


class LossScale:
    """The factor that keeps float16 gradients from vanishing; 1 when `dynamic` is off.

    It halves when a gradient is not finite and doubles after `growth_steps` finite ones, and stays
    between 1 and 2 ** 24. Make it inside the strategy's scope.
    """

    def __init__(self, dynamic, initial=2.0**15, growth_steps=2000):
        self.dynamic, self.growth_steps = dynamic, growth_steps
        self.scale = tf.Variable(initial if dynamic else 1.0, trainable=False)
        self.good_updates = tf.Variable(0, dtype=tf.int64, trainable=False)

    def update(self, finite, local):
        """Takes the finiteness of one update into account, on this replica's copies."""
        if not self.dynamic:
            return
        scale, good = local(self.scale), local(self.good_updates)
        grows = finite & (good + 1 >= self.growth_steps)
        good.assign(tf.where(finite & ~grows, good + 1, tf.zeros_like(good)))
        factor = tf.where(grows, 2.0, tf.where(finite, 1.0, 0.5))
        scale.assign(tf.clip_by_value(scale * factor, 1.0, 2.0**24))

    @property
    def slots(self):
        """The variables, in a fixed order."""
        return [self.scale, self.good_updates]
