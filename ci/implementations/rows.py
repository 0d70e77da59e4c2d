"""The rows of the table: where each implementation is had from, and as which subject it is run."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_dsocr.reference.environment import PINS

TORCH = "torch==2.13.0"
"""Pinned in every environment: another torch changes what both sides compute with. A CPU build will do."""
TRANSFORMERS = "transformers==5.23.0"
LLAMA = "llama-cpp-python==0.3.36"
"""Its source distribution holds llama.cpp."""


@dataclass(frozen=True)
class Row:
    """An implementation."""

    title: str
    subject: str
    """As ``--dsocr-subject`` names it; ``{bin}``: llama.cpp's programs, ``{gguf}``: the exported checkpoint,
    ``{fork}``: the vendor's files with the fork's in place of theirs."""
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
    repository: str = ""
    """Where it is cloned from by who runs the row, at ``commit``."""
    commit: str = ""
    inside: str = ""
    """The folder of the clone that is used: imported from, or, of a fork, the one with its files."""
    is_fork: bool = False
    """Whether its files are changed copies of the vendor's."""
    wraps: bool = False
    """Whether it calls the vendor's own model."""

    folder: str = ""
    """A folder that rows share, so that what they have in common is made once."""

    @property
    def version(self) -> str:
        """What was run, for the table."""
        if self.repository:
            return f"commit {self.commit}"
        pins = [LLAMA] if self.program else [*self.alone, *filter(None, [self.wheel]), *self.packages]
        return pins[0].replace("==", " ")


LLAMA_CLI = (
    "cli:--time-limit=300 {bin}/llama-mtmd-cli -m {gguf}/model.gguf --mmproj {gguf}/mmproj.gguf --image {{page}} "
    "-p '<__media__>\n{{text}}' -n {{max_new_tokens}} --temp 0 -c 8192 --chat-template deepseek-ocr"
)
PORT = 8931
SERVER_OPTIONS = ("--special", "--port", str(PORT), "-c", "32768", "-np", "4")
"""``--special`` keeps ``<|det|>``; its own template for the model loses the image, the GGUF's is right."""

ROWS = {
    "mlx-vlm": Row(
        "mlx-vlm, whole",
        "pytest_dsocr.adapters.mlx_vlm:MlxVlm",
        packages=(TRANSFORMERS, "mlx[cpu]==0.32.4", "requests"),
        alone=("mlx-vlm==0.7.10",),
    ),
    "vllm-processor": Row(
        "vLLM's processor",
        "ci.implementations.alone:vllm",
        wheel="vllm==0.33.0",
        files=("vllm/transformers_utils/processors/deepseek_ocr.py",),
    ),
    "sglang-processor": Row(
        "SGLang's processor",
        "ci.implementations.alone:sglang",
        wheel="sglang==0.5.23",
        files=(
            "sglang/srt/configs/deepseek_ocr.py",
            "sglang/srt/multimodal/customized_mm_processor_utils.py",
        ),
    ),
    "xinference": Row(
        "Xinference's OCR model, around the vendor's",
        "ci.implementations.wrappers:XinferenceOcr",
        packages=PINS,
        wheel="xinference==4.1.0",
        files=tuple(f"xinference/model/image/ocr/{name}.py" for name in ("deepseek_ocr", "latex", "ocr_family")),
        wraps=True,
    ),
    "llm-perf-opt": Row(
        "llm-perf-opt's session, around the vendor's model",
        "ci.implementations.wrappers:LlmPerfOpt",
        packages=(*PINS, "nvtx"),
        repository="https://github.com/CodeGandee/llm-perf-opt",
        commit="8f08155",
        inside="src",
        wraps=True,
    ),
    "cpu-win-fork": Row(
        "DeepSeekOcrCPUWin, a fork of the vendor's files",
        "fork:{fork}",
        packages=PINS,
        repository="https://github.com/kurokencom/DeepSeekOcrCPUWin",
        commit="3d57463",
        inside="model",
        is_fork=True,
    ),
    "by-device-fork": Row(
        "deepseek-ocr-general-modelling, a fork of the vendor's files",
        "fork:{fork}",
        packages=PINS,
        repository="https://github.com/ZoneTwelve/deepseek-ocr-general-modelling",
        commit="af79d03",
        is_fork=True,
    ),
    "llama-mtmd-cli": Row("llama.cpp's `llama-mtmd-cli`", LLAMA_CLI, program="llama-mtmd-cli", folder="llama.cpp"),
    "llama-server": Row(
        "llama.cpp's `llama-server`",
        f"http://localhost:{PORT}/v1",
        program="llama-server",
        serves=True,
        folder="llama.cpp",
    ),
}
