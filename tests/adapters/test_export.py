"""``dsocr export``: a checkpoint as other projects load it, and read back by this one."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from pytest_dsocr.cli.main import main
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import folder_of
from pytest_dsocr.engine.weights import read_weights
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from tests.held import held


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "hf"
    assert main(["export", "mini", "--to=hf", str(folder)]) == 0
    return folder


def test_its_stages_fit_the_recordings(exported: Path) -> None:
    report = held("engine", "invoice_016", 12, on=str(exported))
    assert report.passes
    assert report.counts[Verdict.MATCH] > report.counts[Verdict.NOT_COMPARED]


@pytest.mark.parametrize("form", ["hf", "mlx"])
@pytest.mark.parametrize("name", ["mini", "deepseek_ocr2:mini"])
def test_tables_are_the_checkpoints_and_every_row_has_a_text(name: str, form: str, tmp_path: Path) -> None:
    folder = tmp_path / form
    assert main(["export", name, f"--to={form}", str(folder)]) == 0
    state, own = read_weights(folder), read_weights(folder_of(name))
    assert {*state} == {*own}
    assert all(torch.equal(value, state[key]) for key, value in own.items())
    rows = len(state["lm_head.weight"])
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {*vocabulary["model"]["vocab"].values(), *(token["id"] for token in vocabulary["added_tokens"])}
    assert ids == {*range(rows)}
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"] == rows
    assert len(AutoTokenizer.from_pretrained(folder)) == rows
    assert len(vocabulary["model"]["merges"]) == 1


@pytest.mark.parametrize("form", ["hf", "mlx"])
@pytest.mark.parametrize("name", ["mini", "deepseek_ocr2:mini", "unlimited_ocr:mini", "unlimited_ocr:synthetic:tiny"])
def test_the_config_says_what_shapes_the_weights_have(name: str, form: str, tmp_path: Path) -> None:
    folder = tmp_path / form
    assert main(["export", name, f"--to={form}", str(folder)]) == 0
    shapes = {key: [*value.shape] for key, value in read_weights(folder).items()}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for own in (config, config["language_config"]):
        width, layer = own["hidden_size"], f"model.layers.{own['num_hidden_layers'] - 1}"
        heads, values_of = own["num_attention_heads"], own["num_key_value_heads"]
        values = values_of * (own["v_head_dim"] or width // heads)
        assert shapes[f"{layer}.self_attn.v_proj.weight"] == [values, width]
        assert shapes[f"{layer}.self_attn.o_proj.weight"] == [width, heads * values // values_of]
        assert shapes["model.layers.0.mlp.up_proj.weight"] == [own["intermediate_size"], width]
        last_expert = f"{layer}.mlp.experts.{own['n_routed_experts'] - 1}"
        assert shapes[f"{last_expert}.up_proj.weight"] == [own["moe_intermediate_size"], width]
        assert not [key for key in shapes if key.startswith(f"model.layers.{own['num_hidden_layers']}.")]
        assert shapes["lm_head.weight"] == [own["vocab_size"], width]
    projector = config["projector_config"]
    assert shapes["model.projector.layers.weight"] == [projector["n_embed"], projector["input_dim"]]


def test_a_synthetic_checkpoint_is_given_files(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    assert main(["export", "synthetic:tiny", "--to=hf", str(folder)]) == 0
    asked: dict[str, Any] = {"preset": "tiny", "max_new_tokens": 8}
    names = ("synthetic:tiny", str(folder))
    read, other = (Engine.from_checkpoint(name).run(shipped("dev-3")[0], **asked) for name in names)
    assert read.token_ids == other.token_ids


def test_transformers_encodes_the_same(exported: Path) -> None:
    expected, own = AutoTokenizer.from_pretrained(exported), resolve("mini").tokenizer
    for text in (*DEEPSEEK_OCR.prompts.values(), "Straße, 12 %", "\x00\x02 any"):
        assert expected.encode(text, add_special_tokens=False) == own.encode(text)


def test_mlx_has_its_own_names(tmp_path: Path) -> None:
    assert main(["export", "mini", "--to=mlx", str(tmp_path / "mlx")]) == 0
    config = json.loads((tmp_path / "mlx" / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "deepseekocr"
    assert config["vision_config"]["hidden_size"] == 192
    assert "layer_norm_eps" not in config["vision_config"]


def test_mlx_has_its_own_names_of_deepseek_ocr2(tmp_path: Path) -> None:
    assert main(["export", "deepseek_ocr2:mini", "--to=mlx", str(tmp_path / "mlx")]) == 0
    config = json.loads((tmp_path / "mlx" / "config.json").read_text(encoding="utf-8"))
    processor = json.loads((tmp_path / "mlx" / "processor_config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], processor["processor_class"]) == ("deepseekocr_2", "DeepseekOCR2Processor")


def test_mini_under_another_model_is_exported_as_that(tmp_path: Path) -> None:
    assert main(["export", "unlimited_ocr:mini", "--to=mlx", str(tmp_path / "mlx")]) == 0
    config = json.loads((tmp_path / "mlx" / "config.json").read_text(encoding="utf-8"))
    assert (config["architectures"], config["model_type"]) == (["UnlimitedOCRForCausalLM"], "unlimited-ocr")
    assert config["sliding_window"] == config["language_config"]["sliding_window_size"] == 128


def test_gguf_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "convert_hf_to_gguf.py"
    broken.write_text("import no_such_package\n")
    cases = {
        (): "dsocr: gguf is written by llama.cpp's own converter; name the folder of its sources: --llama-cpp=FOLDER",
        (f"--llama-cpp={tmp_path}/absent",): f"dsocr: there is no {tmp_path}/absent; name a folder of llama.cpp with",
        (f"--llama-cpp={tmp_path}", "--python=no-such-python"): "dsocr: no-such-python cannot be run (No such file",
        (f"--llama-cpp={tmp_path}", f"--python={sys.executable}"): "dsocr: llama.cpp's converter failed: "
        "ModuleNotFoundError: No module named 'no_such_package'; give a Python that has what it imports",
    }
    for k, (options, message) in enumerate(cases.items()):
        assert main(["export", "mini", "--to=gguf", *options, str(tmp_path / f"out{k}")]) == 10
        assert capsys.readouterr().err.startswith(message)


CONVERTER = """
from pathlib import Path
from typing import Any
import gguf
import json
import sys

class TextModel:
    def get_vocab_base_pre(self, tokenizer):
        raise NotImplementedError

def main():
    [_, model, _, outtype, _, out, *rest] = sys.argv
    blocks = gguf.get_tensor_name_map("kind", 3)
    told = " ".join([TextModel().get_vocab_base_pre(None), outtype, f"{blocks} blocks", *rest])
    Path(out).write_text(f"{told} {json.loads(Path(model, 'config.json').read_text())['vision_config'].get('layers')}")
"""


@pytest.mark.parametrize(("name", "tower_layers"), [("mini", None), ("deepseek_ocr2:mini", 3)])
def test_the_converter_is_run_for_the_model_and_for_the_projector(
    name: str, tower_layers: int | None, tmp_path: Path
) -> None:
    (tmp_path / "convert_hf_to_gguf.py").write_text(CONVERTER)
    (tmp_path / "gguf.py").write_text("def get_tensor_name_map(kind, blocks):\n    return blocks\n")
    out = tmp_path / "out"
    assert main(["export", name, "--to=gguf", f"--llama-cpp={tmp_path}", str(out)]) == 0
    assert (out / "model.gguf").read_text() == f"llama-bpe f32 32 blocks {tower_layers}"
    assert (out / "mmproj.gguf").read_text() == f"llama-bpe f32 32 blocks --mmproj {tower_layers}"


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["export", "mini", "--to=hf", str(tmp_path)]) == 2
    assert "is there already and not empty; give another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
