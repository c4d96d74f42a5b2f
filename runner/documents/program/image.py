"""Images: decoded, made smaller if they are too large for models, and written again as PNG or JPEG."""

import io
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError

from .answer import PIXELS, DocumentAnswer, DocumentPart, JsonFields, RefusedDocument, encoded

# Readers without another program behind them (EPS starts Ghostscript) and without references to other files (FITS,
# GRIB and HDF5 are stubs; WMF needs Windows).
FORMATS = (
    "PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "ICO", "ICNS", "PPM", "JPEG2000", "AVIF", "TGA", "QOI", "PSD", "DDS",
    "PCX", "SGI", "XBM", "MPO", "DIB",
)  # fmt: skip
warnings.simplefilter("ignore")


def read(data: bytes, options: JsonFields) -> DocumentAnswer:
    """Return the answer with the one image. Raises RefusedDocument."""
    answer = DocumentAnswer()
    image, words = opened(data)
    part = DocumentPart("", "")
    part.images.append(encoded(image, words))
    answer.parts.append(part)
    answer.notes.append(words)
    return answer


def opened(data: bytes) -> tuple[Image.Image, str]:
    """Return the decoded first frame of an image, and its format and size in words. Raises RefusedDocument.

    THREAT T243: a few kilobytes can decode to gigabytes. The size that the header states is checked first, and the
    memory of this process is limited.
    """
    Image.MAX_IMAGE_PIXELS = None  # replaced by our own check, which also holds for the formats that Pillow exempts
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
        width, height = image.size
        if width * height > PIXELS and image.format == "JPEG":
            image.draft("RGB", (4000, 4000))  # decodes a smaller image
        if image.width * image.height > PIXELS:
            raise RefusedDocument(
                f"it has {width:,} by {height:,} pixels, and {PIXELS:,} are read", "make a smaller copy"
            )
        frames = getattr(image, "n_frames", 1)
        name = image.format or "image"
        image.load()
        image = ImageOps.exif_transpose(image)
    except UnidentifiedImageError:
        raise RefusedDocument("it is no image of a known format", f"the formats are {', '.join(FORMATS)}") from None
    except (OSError, ValueError, SyntaxError, KeyError, IndexError, EOFError, Image.DecompressionBombError) as error:
        why = f"it is damaged ({str(error)[:200] or type(error).__name__})"
        raise RefusedDocument(why, "check the file, or convert it with another program") from None
    words = f"{name} image of {width:,} by {height:,} pixels"
    if max(image.size) > 1568:
        words += ", shown smaller"
    return image, words + (f", the first of {frames:,} frames" if frames > 1 else "")
