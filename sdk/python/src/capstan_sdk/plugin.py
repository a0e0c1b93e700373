"""The plugin object: what the code contributes, by name, and the check against the manifest."""

from __future__ import annotations

import dataclasses
import inspect
import os
import pathlib
import sys
from typing import Any, Callable, Optional, TypeVar, Union

from .codec import JsonObject
from .components import AgentRunner, Channel, FunctionRunner
from .contexts import ToolContext
from .errors import CapstanError, ManifestError
from .json_schema import FunctionSchema, function_schema
from .manifest import HOOK_ARGUMENTS, MANIFEST_NAME, Manifest

Function = TypeVar("Function", bound=Callable[..., Any])
Contribution = TypeVar("Contribution")

MAX_FOLDERS_ABOVE = 4


class RegistrationError(CapstanError):
    """A contribution cannot be registered."""


@dataclasses.dataclass(frozen=True)
class RegisteredTool:
    """A tool function and its schema."""

    function: Callable[..., Any]
    schema: FunctionSchema
    is_given: bool
    description: str


@dataclasses.dataclass(frozen=True)
class RegisteredHook:
    """A hook function and the arguments that it declares."""

    function: Callable[..., Any]
    arguments: tuple[str, ...]


class Plugin:
    """What a plugin contributes. The names must be those of its manifest.

        plugin = Plugin()

        @plugin.runner("hello")
        async def hello(ctx):
            yield message_completed(f"hello, {ctx.text}")

        if __name__ == "__main__":
            serve(plugin)

    manifest: path of `plugin.toml`. Default: the one beside the file that makes the plugin, or above it; otherwise the
    one in the working directory.
    """

    def __init__(self, manifest: Union[str, os.PathLike[str], None] = None) -> None:
        self.manifest_path = manifest or find_manifest(sys._getframe(1).f_globals.get("__file__"))
        self.runners: dict[str, AgentRunner] = {}
        self.hooks: dict[str, RegisteredHook] = {}
        self.tools: dict[str, RegisteredTool] = {}
        self.channels: dict[str, Channel] = {}
        self.knowledge_sources: dict[str, Callable[..., Any]] = {}
        self.model_providers: dict[str, Callable[..., Any]] = {}
        self.start_functions: list[Callable[[], Any]] = []
        self.stop_functions: list[Callable[[], Any]] = []
        self.settings: JsonObject = {}
        self.data_dir: str = os.environ.get("CAPSTAN_PLUGIN_DATA", "")

    # Contributions

    def runner(self, name: str) -> Callable[[Contribution], Contribution]:
        """Registers a subclass of `AgentRunner`, an instance of one, or an asynchronous generator function."""

        def register(contribution: Contribution) -> Contribution:
            if inspect.isasyncgenfunction(contribution):
                runner: object = FunctionRunner(contribution)
            else:
                runner = contribution() if isinstance(contribution, type) else contribution
                if not isinstance(runner, AgentRunner):
                    raise RegistrationError(
                        f"runner {name}: use `async def` with `yield`, or a subclass of AgentRunner"
                    )
                if not inspect.isasyncgenfunction(runner.run):
                    raise RegistrationError(f"runner {name}: `run` must be `async def` and yield results")
            self._add(self.runners, "runner", name, runner)
            return contribution

        return register

    def hook(self, name: Optional[str] = None) -> Callable[[Function], Function]:
        """Registers a function for a hook; without a name, that of the function.

        The parameters are the arguments of the hook that the function wants, and only those are sent.
        """

        def register(function: Function) -> Function:
            hook = name or function.__name__
            if hook not in HOOK_ARGUMENTS:
                raise RegistrationError(f"there is no hook {hook}; known are {', '.join(HOOK_ARGUMENTS)}")
            arguments = tuple(inspect.signature(function).parameters)
            unknown = [argument for argument in arguments if argument not in HOOK_ARGUMENTS[hook]]
            if unknown:
                known = ", ".join(HOOK_ARGUMENTS[hook])
                raise RegistrationError(f"hook {hook}: no argument {', '.join(unknown)}; it has {known}")
            self._add(self.hooks, "hook", hook, RegisteredHook(function, arguments))
            return function

        return register

    def tool(
        self, name: Optional[str] = None, *, parameters: Optional[JsonObject] = None, description: Optional[str] = None
    ) -> Callable[[Function], Function]:
        """Registers a tool; without a name, that of the function.

        The JSON Schema of the arguments is made of the type hints, unless `parameters` is given. A parameter of the
        type `ToolContext` gets the context of the call. The manifest has the same schema:
        `python -m capstan_sdk manifest FILE` prints it.
        """

        def register(function: Function) -> Function:
            if parameters is None:
                schema = function_schema(function, ToolContext)
            else:
                schema = given_schema(function, parameters)
            text = description if description is not None else inspect.getdoc(function) or ""
            tool = RegisteredTool(function, schema, parameters is not None, text)
            self._add(self.tools, "tool", name or function.__name__, tool)
            return function

        return register

    def channel(self, name: str) -> Callable[[Contribution], Contribution]:
        """Registers a subclass of `Channel`, or an instance of one. One instance serves for the life of the process."""

        def register(contribution: Contribution) -> Contribution:
            channel = contribution() if isinstance(contribution, type) else contribution
            if not isinstance(channel, Channel):
                raise RegistrationError(f"channel {name}: not a Channel")
            channel.name = name
            self._add(self.channels, "channel", name, channel)
            return contribution

        return register

    def knowledge(self, id: str) -> Callable[[Function], Function]:
        """Registers a function that searches a knowledge source: it gets a `KnowledgeQuery`, and returns a list of
        `KnowledgePassage` or a `KnowledgeAnswer`."""

        def register(function: Function) -> Function:
            self._add(self.knowledge_sources, "knowledge source", id, function)
            return function

        return register

    def model(self, name: str) -> Callable[[Function], Function]:
        """Registers an asynchronous generator function that gets a `ModelRequest` and yields model events."""

        def register(function: Function) -> Function:
            if not inspect.isasyncgenfunction(function):
                raise RegistrationError(f"model provider {name}: use `async def` with `yield`")
            self._add(self.model_providers, "model provider", name, function)
            return function

        return register

    def on_start(self, function: Function) -> Function:
        """Registers a function that is called once `settings` and `data_dir` are there, before anything is served."""
        self.start_functions.append(function)
        return function

    def on_stop(self, function: Function) -> Function:
        """Registers a function that is called before the process ends, unless the process is killed."""
        self.stop_functions.append(function)
        return function

    def _add(self, table: dict[str, Any], kind: str, name: str, contribution: object) -> None:
        if name in table:
            raise RegistrationError(f"the {kind} {name} is registered twice")
        table[name] = contribution

    # Manifest

    def load_manifest(self) -> Manifest:
        """The manifest, checked against what is registered."""
        manifest = Manifest.load(self.manifest_path)
        differences = self.differences(manifest)
        if differences:
            raise ManifestError("plugin.toml and the code differ:\n" + "\n".join(f"  - {each}" for each in differences))
        return manifest

    def differences(self, manifest: Manifest) -> list[str]:
        """Differences between the manifest and what is registered, as sentences with a hint."""
        hooks = {name: hook for name, hook in manifest.hooks.items() if not manifest.is_static(name)}
        found: list[str] = []
        kinds: list[tuple[str, str, str, Any, Any]] = [
            ("runner", "runners", "runner", manifest.runners, self.runners),
            ("hook", "hooks", "hook", hooks, self.hooks),
            ("tool", "tools", "tool", manifest.tools, self.tools),
            ("channel", "channels", "channel", manifest.channels, self.channels),
            ("knowledge source", "knowledge", "knowledge", manifest.knowledge, self.knowledge_sources),
            ("model provider", "models", "model", manifest.models, self.model_providers),
        ]
        for kind, key, decorator, declared, registered in kinds:
            for name in declared:
                if name not in registered:
                    found.append(
                        f'the code does not implement the {kind} {name}: add @plugin.{decorator}("{name}") or remove it'
                    )
            for name in registered:
                if name not in declared:
                    identifier = "id" if key == "knowledge" else "name"
                    found.append(
                        f'the manifest does not have the {kind} {name}: add [[{key}]] with {identifier} = "{name}"'
                    )
        for name, hook in hooks.items():
            found += self._hook_differences(name, hook.get("arguments", []))
        for name in manifest.tools:
            found += self._tool_differences(name, manifest.tool_parameters(name) or {})
        return found

    def _hook_differences(self, name: str, declared: list[str]) -> list[str]:
        registered = self.hooks.get(name)
        if registered is None or set(registered.arguments) == set(declared):
            return []
        wanted = ", ".join(f'"{argument}"' for argument in registered.arguments)
        return [f"the hook {name} takes other arguments than the manifest declares: write arguments = [{wanted}]"]

    def _tool_differences(self, name: str, declared: JsonObject) -> list[str]:
        tool = self.tools.get(name)
        if tool is None:
            return []
        found = []
        properties = declared.get("properties", {})
        own = tool.schema.parameters.get("properties", {})
        for parameter in properties:
            if parameter not in own and not tool.schema.takes_any:
                found.append(
                    f"the function of the tool {name} has no parameter {parameter}, which the manifest declares"
                )
        for parameter in own:
            if parameter not in properties:
                found.append(f"the manifest does not declare the parameter {parameter} of the tool {name}")
        for parameter in tool.schema.parameters.get("required", []):
            if parameter in properties and parameter not in declared.get("required", []):
                found.append(
                    f"the parameter {parameter} of the tool {name} has no default: add it to required in the manifest"
                )
        for parameter, schema in properties.items():
            kind, own_kind = schema.get("type"), own.get(parameter, {}).get("type")
            if kind and own_kind and kind != own_kind:
                found.append(
                    f"the parameter {parameter} of the tool {name} is {own_kind} in the code and {kind} in the manifest"
                )
        return found


def find_manifest(source: Optional[str]) -> pathlib.Path:
    """Manifest of the plugin that a source file belongs to."""
    if source is not None:
        for folder in list(pathlib.Path(source).resolve().parents)[:MAX_FOLDERS_ABOVE]:
            if (folder / MANIFEST_NAME).is_file():
                return folder / MANIFEST_NAME
    return pathlib.Path(MANIFEST_NAME).absolute()


def given_schema(function: Callable[..., Any], parameters: JsonObject) -> FunctionSchema:
    """Schema that the author gave, for a function whose hints are not used."""
    context_name = None
    takes_any = False
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation in (ToolContext, "ToolContext"):
            context_name = name
        elif parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        else:
            names.append(name)
    missing = [name for name in parameters.get("properties", {}) if name not in names and not takes_any]
    if missing:
        raise RegistrationError(f"{function.__name__} has no parameter {', '.join(missing)}: add it, or **arguments")
    return FunctionSchema(parameters, {}, context_name, takes_any)
