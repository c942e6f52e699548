"""Guards of the package's shape: stubs, documentation, exports, frozen classes."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import lakemark
from lakemark import _internal

ROOT = Path(__file__).parents[2]
STUB = Path(lakemark.__file__).with_name("_internal.pyi")
MODULES = [
    lakemark,
    *(importlib.import_module(m.name) for m in pkgutil.walk_packages(lakemark.__path__, prefix="lakemark.")),
]


def native_classes() -> dict[str, type]:
    return dict(inspect.getmembers(_internal, inspect.isclass))


def public_names(kind: type) -> set[str]:
    protocol = {"__arrow_c_stream__", "__arrow_c_schema__", "__datafusion_table_provider__"}
    return {name for name in vars(kind) if not name.startswith("_") or name in protocol}


def test_the_stub_declares_exactly_what_the_native_module_has() -> None:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    declared = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert len(declared) >= 5
    assert set(declared) == set(native_classes())
    for name, kind in native_classes().items():
        methods = {item.name for item in declared[name].body if isinstance(item, ast.FunctionDef)} - {"__init__"}
        assert methods == public_names(kind), name
    assert functions == {name for name, _ in inspect.getmembers(_internal, inspect.isbuiltin)}


def test_the_stub_has_the_arguments_of_the_native_methods() -> None:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    compared = 0
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for item in (item for item in node.body if isinstance(item, ast.FunctionDef)):
            if item.name == "__init__":
                continue
            native = list(inspect.signature(getattr(native_classes()[node.name], item.name)).parameters)
            assert [argument.arg for argument in item.args.args] == native, f"{node.name}.{item.name}"
            compared += 1
    assert compared > 20


def test_every_native_method_is_used_by_the_typed_layer() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in STUB.parent.rglob("*.py"))
    methods = {name for kind in native_classes().values() for name in public_names(kind)}
    methods -= {"__arrow_c_stream__"}
    methods -= {"rows"}
    assert len(methods) > 15
    for name in methods:
        assert f"_inner.{name}(" in text, name


def test_native_classes_are_frozen() -> None:
    sources = list((ROOT / "rust" / "python" / "src").glob("*.rs"))
    found = [line.strip() for path in sources for line in path.read_text(encoding="utf-8").splitlines()]
    classes = [line for line in found if line.startswith("#[pyclass")]
    assert len(classes) == len(native_classes())
    assert all("frozen" in line for line in classes)


def test_every_module_says_what_it_exports_and_exports_it() -> None:
    assert len(MODULES) >= 15
    for module in MODULES:
        if module is _internal:
            continue
        assert module.__doc__, module.__name__
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"
    assert list(lakemark.__all__) == sorted(lakemark.__all__)


def test_everything_public_is_documented() -> None:
    seen = 0
    for name in lakemark.__all__:
        value = getattr(lakemark, name)
        if inspect.ismodule(value):
            continue
        assert inspect.getdoc(value), name
        kinds = (
            [kind for kind in inspect.getmro(value) if kind.__module__.startswith("lakemark")]
            if inspect.isclass(value)
            else []
        )
        for member, body in (item for kind in kinds for item in vars(kind).items()):
            if not member.startswith("_") and (inspect.isfunction(body) or isinstance(body, property | classmethod)):
                assert inspect.getdoc(body), f"{name}.{member}"
                seen += 1
    assert seen > 60


def test_the_package_has_doctests_and_is_typed() -> None:
    finder = doctest.DocTestFinder()
    examples = sum(len(test.examples) for module in MODULES if module is not _internal for test in finder.find(module))
    assert examples > 20
    assert STUB.with_name("py.typed").is_file()


def test_the_version_is_the_workspaces() -> None:
    manifest = ROOT / "rust" / "Cargo.toml"
    assert f'version = "{lakemark.__version__}"' in manifest.read_text(encoding="utf-8")
