"""The rows of the table: where each implementation is had from, and as which subject it is run."""

from __future__ import annotations

from dataclasses import dataclass

TORCH = "torch==2.13.0"
"""Pinned in every environment: another torch changes what both sides compute with. A CPU build will do."""
TRANSFORMERS = "transformers==5.23.0"
LLAMA = "llama-cpp-python==0.3.36"
"""Its source distribution holds llama.cpp."""


@dataclass(frozen=True)
class Row:
    """An implementation."""

    subject: str
    """As ``--dsocr-subject`` names it; ``{bin}``: llama.cpp's programs, ``{gguf}``: the exported checkpoint."""
    packages: tuple[str, ...] = (TRANSFORMERS,)
    """Installed with what they need."""
    alone: tuple[str, ...] = ()
    """Installed without what they need."""
    wheel: str = ""
    """A package too large to install, of whose wheel only ``files`` are unpacked."""
    files: tuple[str, ...] = ()
    program: str = ""
    """Which of llama.cpp's programs is built, where it is one."""
    serves: bool = False
    """Whether that program is a server."""


LLAMA_CLI = (
    "cli:--time-limit=300 {bin}/llama-mtmd-cli -m {gguf}/model.gguf --mmproj {gguf}/mmproj.gguf --image {{page}} "
    "-p '<__media__>\n{{text}}' -n {{max_new_tokens}} --temp 0 -c 8192 --chat-template deepseek-ocr"
)
PORT = 8931
SERVER_OPTIONS = ("--special", "--port", str(PORT), "-c", "32768", "-np", "4")
"""``--special`` keeps ``<|det|>``; its own template for the model loses the image, the GGUF's is right."""

ROWS = {
    "mlx-vlm": Row(
        "pytest_dsocr.adapters.mlx_vlm:MlxVlm",
        packages=(TRANSFORMERS, "mlx[cpu]==0.32.4", "requests"),
        alone=("mlx-vlm==0.7.10",),
    ),
    "vllm-processor": Row(
        "ci.implementations.alone:vllm",
        wheel="vllm==0.33.0",
        files=("vllm/transformers_utils/processors/deepseek_ocr.py",),
    ),
    "sglang-processor": Row(
        "ci.implementations.alone:sglang",
        wheel="sglang==0.5.23",
        files=(
            "sglang/srt/configs/deepseek_ocr.py",
            "sglang/srt/multimodal/customized_mm_processor_utils.py",
        ),
    ),
    "llama-mtmd-cli": Row(LLAMA_CLI, program="llama-mtmd-cli"),
    "llama-server": Row(f"http://localhost:{PORT}/v1", program="llama-server", serves=True),
}
