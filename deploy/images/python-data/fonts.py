"""Prints matplotlib's list of an image's fonts, as matplotlib keeps it.

    fonts.py ROOT

Runs in the image's interpreter while the image is built; ROOT is where its
files lie then. The fonts are taken in one order: of two that fit equally well
matplotlib takes the first, so a plot has the same one each time.
"""

import json
import os
import sys

import matplotlib
from matplotlib import font_manager

FOLDERS = {"ttf": ("fonts/ttf",), "afm": ("fonts/afm", "fonts/pdfcorefonts")}


def main(root: str) -> None:
    manager = font_manager.fontManager
    # So far those of the machine that builds.
    manager.ttflist, manager.afmlist = [], []
    data = matplotlib.get_data_path()
    for extension, folders in FOLDERS.items():
        places = [os.path.join(data, folder) for folder in folders]
        of_packages = font_manager.list_fonts(f"{root}/usr/share/fonts", font_manager.get_fontext_synonyms(extension))
        for path in [*sorted(font_manager.findSystemFonts(places, extension)), *sorted(map(str, of_packages))]:
            manager.addfont(path)
    for font in [*manager.ttflist, *manager.afmlist]:
        if not font.fname.startswith(data):
            font.fname = font.fname.removeprefix(root)
    print(json.dumps(manager, cls=font_manager._JSONEncoder, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
