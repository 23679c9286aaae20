from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

OPEN_TO_ALL = "headgate.version"


class MayImport(Contract):
    """Decides, package by package, which of our modules may be imported directly.

    A package may always import itself. Since every package has such a rule, direct imports are
    enough: nothing forbidden can be reached through a neighbour. A package that does not exist
    breaks no rule.
    """

    packages = fields.ListField(subfield=fields.StringField())
    may_import = fields.ListField(subfield=fields.StringField())
    unless = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        # The library puts the configured lists where the declarations above stand.
        packages = cast("list[str]", self.packages)
        allowed = [OPEN_TO_ALL, *cast("list[str]", self.may_import)]
        exempt = cast("list[str]", self.unless)
        broken = [
            (importer, imported)
            for package in packages
            for importer in sorted(graph.modules)
            if _inside(importer, [package]) and not _inside(importer, exempt)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if _inside(imported, ["headgate"]) and not _inside(imported, [package, *allowed])
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"{importer} must not import {imported}")


def _inside(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
