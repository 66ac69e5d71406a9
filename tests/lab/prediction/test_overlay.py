"""Masks drawn over pictures: tinted, outlined, and named where there are several classes."""

import numpy as np
import torch

from explainfix.lab.prediction.overlay import class_colour, class_numbers, overlay


def test_what_was_found_is_tinted_and_outlined():
    found = torch.zeros(8, 8)
    found[2:6, 2:6] = 1
    pixels = np.asarray(overlay(torch.zeros(1, 8, 8), found, ("mask",)))
    assert pixels.shape == (8, 8, 3)
    assert (pixels[found == 0] == 0).all()
    assert pixels[2, 2].tolist() == list(class_colour(1))
    assert 0 < pixels[3, 3, 0] < 100


def test_several_classes_have_colours_and_a_legend():
    found = torch.zeros(40, 90)
    found[5:15, 5:15], found[20:30, 20:30] = 1, 3
    picture = overlay(torch.zeros(3, 40, 90), found, ("background", "liver", "spleen", "tumour"))
    pixels = np.asarray(picture)
    assert pixels[5, 5].tolist() == list(class_colour(1))
    assert pixels[20, 20].tolist() == list(class_colour(3))
    legend = pixels[40:].reshape(-1, 3)
    assert len(legend) > 0
    for number in (1, 2, 3):
        assert (legend == class_colour(number)).all(1).any(), number
    assert len({class_colour(number) for number in range(1, 40)}) == 39


def test_the_middle_slice_of_a_volume():
    found = torch.zeros(5, 8, 8)
    found[2, 4:6, 4:6] = 1
    pixels = np.asarray(overlay(torch.zeros(1, 5, 8, 8), found, ("mask",)))
    assert (pixels.sum(2) > 0).sum() == 4


def test_numbers_of_classes():
    assert class_numbers(torch.tensor([[0.4, 0.6]])).tolist() == [0, 1]
    assert class_numbers(torch.tensor([[0.4, 0.6]]), threshold=0.3).tolist() == [1, 1]
    several = torch.tensor([[0.4, 0.2], [0.3, 0.3], [0.3, 0.5]])
    assert class_numbers(several).tolist() == [0, 2]  # the likeliest, though below one half
