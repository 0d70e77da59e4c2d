"""A checkpoint in the forms that other implementations load: ``hf``, ``mlx``, ``gguf``."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from pytest_dsocr.adapters import to_gguf
from pytest_dsocr.adapters.mlx_vlm import write_mlx
from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.words import fit, in_shell
from pytest_dsocr.engine.portable import write_portable

CONVERTER = "convert_hf_to_gguf.py"
COLUMNS = 300


def export(checkpoint: str, form: str, folder: Path, llama_cpp: Path | None, python: Path) -> list[Path]:
    """Write a checkpoint in the form that another implementation loads.

    Args:
        checkpoint: its name.
        form: ``hf``, ``mlx`` or ``gguf``.
        folder: new or empty.
        llama_cpp: for ``gguf``, llama.cpp's folder, or its ``convert_hf_to_gguf.py``.
        python: a Python with torch, transformers and numpy that runs the converter.

    Returns:
        The files written.

    Raises:
        DsocrError: if there is no such checkpoint, its converter is missing or fails, or the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DsocrError(f"{folder} is there already and not empty; give another folder")
    if form == "gguf":
        _write_gguf(checkpoint, folder, _converter(llama_cpp), python)
    else:
        {"hf": write_portable, "mlx": write_mlx}[form](checkpoint, folder)
    return sorted(folder.iterdir())


def _converter(sources: Path | None) -> Path:
    if sources is None:
        raise MachineError(
            "gguf is written by llama.cpp's own converter; name the folder of its sources: --llama-cpp=FOLDER (the "
            "source distribution of llama-cpp-python has it in vendor/llama.cpp)"
        )
    script = sources / CONVERTER if sources.is_dir() else sources
    if not script.is_file():
        raise MachineError(f"there is no {script}; name a folder of llama.cpp with {CONVERTER}: --llama-cpp=FOLDER")
    return script.absolute()


def _write_gguf(checkpoint: str, folder: Path, script: Path, python: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        write_portable(checkpoint, Path(scratch, "hf"))
        _state_tower(Path(scratch, "hf", "config.json"))
        folder.mkdir(parents=True, exist_ok=True)
        files = (to_gguf.__file__, script, Path(scratch, "hf"), folder.absolute())
        command = [*map(str, (python, *files))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        except OSError as error:
            raise MachineError(f"{python} cannot be run ({error.strerror}); give another --python") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise MachineError(
            f"llama.cpp's converter failed: {fit(last, COLUMNS)}; give a Python that has what it imports "
            f"(torch, transformers, numpy, gguf): --python=PYTHON; it was: {fit(in_shell(command), COLUMNS)}"
        )


def _state_tower(path: Path) -> None:
    """Write a Qwen2 tower's sizes where the converter looks for them; it knows those of the published model alone."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if tower := config["vision_config"]["width"].get("qwen2-0-5b"):
        names = {"layers": "layers", "num_attention_heads": "heads", "intermediate_size": "intermediate_size"}
        config["vision_config"] |= {name: tower[own] for name, own in names.items()}
        path.write_text(json.dumps(config), encoding="utf-8")
