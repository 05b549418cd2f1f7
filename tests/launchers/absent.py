"""Modules that need a GPU, or have no place here, as empty classes. Imported before what asks for them."""

import importlib.abc
import importlib.machinery
import sys
import types
import typing

import typing_extensions

ABSENT = (
    *("transformer_engine", "transformer_engine_torch", "modelopt", "nvidia_resiliency_ext", "apex", "flash_attn"),
    *("causal_conv1d", "mamba_ssm", "onnxscript", "nvdlfw_inspect", "qwen_vl_utils", "open_clip", "timm", "webdataset"),
    *("megatron.energon", "comet_ml", "mlflow", "diffusers", "imageio", "av", "ftfy"),
    *("megatron.bridge.recipes.flux", "megatron.bridge.recipes.wan", "megatron.bridge.diffusion"),
)


class Empty(type):
    """Of classes that have whatever is asked of them."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing


class Nothing(metaclass=Empty):
    """Stands for a class that needs a GPU."""

    def __init__(self, *arguments, **named):
        """Takes anything."""

    def __call__(self, *arguments, **named):
        """A decorator gives back what it decorates."""
        return arguments[0] if arguments and callable(arguments[0]) else Nothing()


class Module(types.ModuleType):
    """A module of such classes."""

    __path__: typing.ClassVar[list[str]] = []
    __version__ = "2.9.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Nothing,), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what is absent."""

    def find_spec(self, name, path=None, target=None):
        if name in ABSENT or name.startswith(tuple(f"{each}." for each in ABSENT)):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        """Nothing to run."""


def replace():
    """From here on what is absent is empty."""
    sys.meta_path.insert(0, Finder())
    if not hasattr(typing, "override"):  # Python 3.12's
        typing.override = typing_extensions.override
