"""Opens model directories as Hugging Face writes them: ``config.json``, ``*.safetensors``, ``tokenizer.json``."""

from __future__ import annotations

from pathlib import Path

from outrider.errors import ModelFileError
from outrider.models.architectures import of_config_json
from outrider.models.architectures.base import Architecture, RawTensor, assign_roles
from outrider.models.architectures.sizes import read_sizes
from outrider.models.architectures.traits import Source
from outrider.models.config import ModelConfig
from outrider.models.fields import Fields, shown
from outrider.models.files import ModelFiles, fingerprint, printable
from outrider.models.hf_tokenizer import open_tokenizer
from outrider.models.json_file import read_json
from outrider.models.mapping import map_file
from outrider.models.safetensors_file import read_tensors
from outrider.models.tokenizer import MAX_TOKENS

_INDEX = "model.safetensors.index.json"
_OUTPUT = "lm_head.weight"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# Where a config.json of the architecture says nothing of a sliding window, transformers assumes this one.
_DEFAULT_WINDOWS = {"mistral": 4096}


def open_directory(path: Path) -> ModelFiles:
    """Open a model directory.

    Raises:
        ModelFileError: Something is missing, damaged or of a kind that is not supported.
    """
    config_path = path / "config.json"
    if not config_path.exists():
        raise ModelFileError(f"{config_path} is missing; give a .gguf file or a directory with config.json")
    fields = Fields(read_json(config_path), config_path)
    if fields.has("quantization_config"):
        method = fields.section("quantization_config").values.get("quant_method")
        raise fields.error(f"quantization_config ({shown(method)}) is not supported; use the GGUF of this model")
    architecture = of_config_json(fields)
    fields = Fields({**architecture.defaults, **fields.values}, config_path)
    config = _read_config(fields, architecture)
    files = {file: map_file(file) for file in _weight_paths(path)}
    tensors = _collect({file: read_tensors(data, file) for file, data in files.items()}, path)
    if fields.flag("tie_word_embeddings", default=False):
        tensors.pop(_OUTPUT, None)
    elif _OUTPUT not in tensors:
        raise fields.error(f"{_OUTPUT} is missing, and tie_word_embeddings is not true; fetch the model again")
    tokenizer, template = open_tokenizer(path)
    return ModelFiles(
        name=printable(_name(path.absolute())),
        path=path,
        config=config,
        tensors=assign_roles(architecture, "safetensors", tensors, config, path),
        tokenizer=tokenizer,
        chat_template=template,
        file_bytes=sum(data.size for data in files.values()),
        fingerprint=fingerprint(files.values()),
    )


def _name(path: Path) -> str:
    """Return the directory's name, or the repository's where the directory is a revision in the hub's cache."""
    if path.parent.name != "snapshots":
        return path.name
    return path.parent.parent.name.removeprefix("models--").replace("--", "/")


def _read_config(fields: Fields, architecture: Architecture) -> ModelConfig:
    fields.only("partial_rotary_factor", [1.0, 1])
    window = None if architecture.windowed else _sliding_window(fields)
    sizes = read_sizes(fields, "safetensors", window=window)
    return architecture.describe(Source(fields, "safetensors"), sizes, fields.integer("vocab_size", 1, MAX_TOKENS))


def _sliding_window(fields: Fields) -> int | None:
    key = "sliding_window"
    if not fields.flag("use_sliding_window", default=True):
        return None
    if key not in fields.values:
        return _DEFAULT_WINDOWS.get(fields.text("model_type"))
    return fields.integer(key, 1, 1 << 31) if fields.has(key) else None


def _weight_paths(path: Path) -> list[Path]:
    index = path / _INDEX
    if index.exists():
        mapping = Fields(read_json(index), index)
        names = sorted(set(map(str, mapping.section("weight_map").values.values())))
        for name in names:
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise mapping.error(f"weight_map names the file {shown(name)}, not a .safetensors file beside it")
        return [path / name for name in names]
    single = path / "model.safetensors"
    found = [single] if single.exists() else sorted(path.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise ModelFileError(f"{path} has {len(found)} .safetensors files and no {_INDEX}; fetch it whole")
    pickles = sorted(file.name for pattern in _PICKLES for file in path.glob(pattern))
    if pickles:
        raise ModelFileError(
            f"{path} holds {shown(pickles[0])}, a pickle, which can run code when it is read and never is; convert it "
            "with transformers: from_pretrained(...).save_pretrained(..., safe_serialization=True)"
        )
    raise ModelFileError(f"{path} has no .safetensors file; fetch the model again")


def _collect(files: dict[Path, dict[str, RawTensor]], path: Path) -> dict[str, RawTensor]:
    """Return the tensors of all files; the index, where there is one, must tell the truth."""
    tensors: dict[str, RawTensor] = {}
    for file, found in files.items():
        twice = tensors.keys() & found.keys()
        if twice:
            raise ModelFileError(f"{file}: tensor {shown(min(twice))} is in another file too; fetch the model again")
        tensors.update(found)
    if (path / _INDEX).exists():
        listed = read_json(path / _INDEX).get("weight_map", {}).keys()
        if listed != tensors.keys():
            name = min(listed ^ tensors.keys())
            raise ModelFileError(f"{path / _INDEX}: tensor {shown(name)} is not both listed and there; fetch it again")
    return tensors
