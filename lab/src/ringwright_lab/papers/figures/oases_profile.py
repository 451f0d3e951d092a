"""Measured times of one layer on four or eight RTX 3090, by hidden size and sequences of a micro-batch, in milliseconds.

From the authors' own profile (github.com/lucasleesw/oases, ``benchmark/profile/profile_result_3090.pt``, Apache License 2.0):
sequences of 1024 tokens; attention forward and backward, MLP forward and backward, one all-reduce of the activations.
"""

from __future__ import annotations

from dataclasses import dataclass

SEQUENCE, LARGEST = 1024, 4096  # tokens; the largest hidden size of the profile


@dataclass(frozen=True)
class LayerMs:
    """One layer's times in milliseconds."""

    attention: float
    attention_back: float
    mlp: float
    mlp_back: float
    sum: float

    def wider(self, times: float) -> LayerMs:
        """Return the times at a hidden size so many times as large: products grow with its square, a sum with itself."""
        square = times * times
        attention, mlp = (
            (self.attention * square, self.attention_back * square),
            (self.mlp * square, self.mlp_back * square),
        )
        return LayerMs(*attention, *mlp, self.sum * times)


# (hidden size, ranks that cut it, sequences) -> times
MEASURED = {
    (1024, 4, 1): LayerMs(0.887784, 1.217849, 0.392889, 0.6855, 1.471407),
    (1024, 4, 2): LayerMs(0.972959, 1.296362, 0.591611, 0.907436, 1.850473),
    (1024, 4, 4): LayerMs(1.535699, 2.245613, 0.986896, 1.647413, 3.493068),
    (1024, 4, 8): LayerMs(2.849966, 4.243474, 1.750407, 2.964995, 7.093019),
    (2048, 4, 1): LayerMs(1.075158, 1.555408, 0.873116, 1.545586, 1.981652),
    (2048, 4, 2): LayerMs(1.810694, 2.761673, 1.51762, 2.704535, 3.242876),
    (2048, 4, 4): LayerMs(3.236147, 5.184441, 2.685279, 5.075569, 7.291582),
    (2048, 4, 8): LayerMs(6.327771, 10.054885, 5.280202, 9.933518, 18.20661),
    (3072, 4, 1): LayerMs(1.52923, 2.614387, 1.590733, 3.05185, 2.425029),
    (3072, 4, 2): LayerMs(2.864488, 4.76243, 2.655753, 5.177881, 5.030473),
    (3072, 4, 4): LayerMs(5.578445, 9.071454, 5.252192, 9.996531, 12.213881),
    (3072, 4, 8): LayerMs(10.768277, 17.671082, 10.049139, 19.226053, 29.273577),
    (4096, 4, 1): LayerMs(2.378049, 3.992353, 2.663442, 4.889889, 3.031517),
    (4096, 4, 2): LayerMs(4.169933, 7.265732, 4.613277, 8.764784, 7.326324),
    (4096, 4, 4): LayerMs(8.121632, 13.973694, 8.614557, 16.416487, 17.948187),
    (4096, 4, 8): LayerMs(15.803508, 27.289381, 16.670168, 31.769884, 41.086544),
    (4096, 8, 1): LayerMs(1.333317, 2.295762, 1.428349, 2.792237, 3.106817),
    (4096, 8, 2): LayerMs(2.541836, 4.014885, 2.713283, 4.982641, 7.562589),
    (4096, 8, 4): LayerMs(4.641838, 7.602331, 4.967252, 9.17909, 17.62709),
    (4096, 8, 8): LayerMs(9.034852, 14.94473, 9.471149, 17.441986, 39.488766),
}


def layer_ms(hidden: int, ranks: int, sequences: int) -> LayerMs:
    """Return a layer's times; KeyError for what was not measured and is not wider than what was."""
    known = MEASURED[min(hidden, LARGEST), ranks, sequences]
    return known.wider(hidden / LARGEST) if hidden > LARGEST else known
