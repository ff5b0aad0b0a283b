"""Whether a file is a picture with something on it."""

from pathlib import Path


def is_a_picture(path, least=(300, 200)):
    """A PNG of a useful size that is not blank: neither all white nor one colour."""
    import numpy as np
    from PIL import Image

    assert Path(path).stat().st_size > 5000
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"), dtype=float)
    height, width = pixels.shape
    assert width >= least[0] and height >= least[1], f"{path} is {width} x {height}"
    inked = (np.abs(pixels - np.median(pixels)) > 30).mean()
    assert pixels.std() > 5 and 0.002 < inked < 0.95, f"{path} is blank: std {pixels.std():.2f}, {100 * inked:.2f} % inked"
    return True
