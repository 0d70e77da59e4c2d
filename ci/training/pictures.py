"""Pictures without words: landscapes, shapes, charts, and blurs of colour as photographs have."""

from random import Random

from PIL import Image, ImageDraw, ImageOps

from ci.training.canvas import Colour

WIDTH_PX, HEIGHT_PX = 320, 240
"""Size of a picture before it is stretched over its place on a page."""


def draw_picture(rng: Random) -> Image.Image:
    """Draw one of the pictures."""
    return rng.choice((_landscape, _shapes, _bars, _line, _photograph))(rng)


def _colour(rng: Random, darkest: int = 40, lightest: int = 200) -> Colour:
    return rng.randint(darkest, lightest), rng.randint(darkest, lightest), rng.randint(darkest, lightest)


def _gradient(rng: Random) -> Image.Image:
    ramp, first, last = Image.new("RGB", (1, 8)), _colour(rng, 90, 230), _colour(rng, 60, 200)
    for y in range(8):
        red, green, blue = (round(a + (b - a) * y / 7) for a, b in zip(first, last, strict=True))
        ramp.putpixel((0, y), (red, green, blue))
    return ramp.resize((WIDTH_PX, HEIGHT_PX))


def _landscape(rng: Random) -> Image.Image:
    image = _gradient(rng)
    draw = ImageDraw.Draw(image)
    x, y, r = rng.randint(40, 280), rng.randint(30, 90), rng.randint(12, 28)
    draw.ellipse((x - r, y - r, x + r, y + r), fill=_colour(rng, 200, 250))
    for base in (150, 190):
        ridge = [(x, base + rng.randint(-50, 20)) for x in range(0, WIDTH_PX + 40, 40)]
        draw.polygon([(0, HEIGHT_PX), *ridge, (WIDTH_PX, HEIGHT_PX)], fill=_colour(rng, 30, 150))
    return image


def _shapes(rng: Random) -> Image.Image:
    image = _gradient(rng)
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randint(3, 7)):
        x, y = rng.randint(0, WIDTH_PX - 80), rng.randint(0, HEIGHT_PX - 80)
        box = (x, y, x + rng.randint(30, 120), y + rng.randint(30, 120))
        rng.choice((draw.ellipse, draw.rectangle))(box, fill=_colour(rng))
    return image


def _axes(rng: Random) -> Image.Image:
    image = Image.new("RGB", (WIDTH_PX, HEIGHT_PX), _colour(rng, 215, 240))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, WIDTH_PX - 1, HEIGHT_PX - 1), outline=(90, 90, 90), width=2)
    draw.line((30, 20, 30, 215, 300, 215), fill=(40, 40, 40), width=3)
    return image


def _bars(rng: Random) -> Image.Image:
    image = _axes(rng)
    draw, count, colour = ImageDraw.Draw(image), rng.randint(3, 7), _colour(rng, 30, 180)
    step = 260 / count
    for n in range(count):
        draw.rectangle((36 + step * n, rng.randint(30, 190), 36 + step * (n + 0.7), 212), fill=colour)
    return image


def _line(rng: Random) -> Image.Image:
    image = _axes(rng)
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randint(1, 3)):
        points = [(x, rng.randint(30, 205)) for x in range(36, 300, 44)]
        draw.line(points, fill=_colour(rng, 20, 170), width=4)
    return image


def _photograph(rng: Random) -> Image.Image:
    noise, base = Image.new("RGB", (rng.randint(6, 12), rng.randint(5, 9))), _colour(rng, 60, 190)
    shades = (rng.randint(-50, 50) for _ in range(noise.width * noise.height))
    noise.putdata([(base[0] + shade, base[1] + shade, base[2] + shade // 2) for shade in shades])
    return ImageOps.posterize(noise.resize((WIDTH_PX, HEIGHT_PX), Image.Resampling.BICUBIC), 4)
